package driver

// olderKeysyms are the keysyms of characters from before X took them from Unicode, of which keyboard maps are still
// full: Cyrillic_ef and Greek_alpha. Each row is a run of them, a space where there is none (X Window System Protocol,
// appendix A; the characters are those of X11's keysymdef.h, without the ones it calls doubtful).
var olderKeysyms = []struct {
	first      Key
	characters string
}{
	{0x1a1, "Ą˘Ł ĽŚ  ŠŞŤŹ ŽŻ ą˛ł ľśˇ šşťź˝žżŔ  Ă ĹĆ Č Ę Ě  ĎĐŃŇ  Ő  ŘŮ Ű  Ţ ŕ  ă ĺć č ę ě  ďđńň  ő  řů ű  ţ˙"},
	{0x2a1, "Ħ    Ĥ  İ ĞĴ    ħ    ĥ  ı ğĵ"},
	{0x2c5, "ĊĈ"},
	{0x2d5, "Ġ  Ĝ    ŬŜ"},
	{0x2e5, "ċĉ"},
	{0x2f5, "ġ  ĝ    ŭŝ"},
	{0x3a2, "ĸŖ ĨĻ   ĒĢŦ"},
	{0x3b3, "ŗ ĩļ   ēģŧŊ ŋĀ"},
	{0x3c7, "Į    Ė  Ī ŅŌĶ     Ų   ŨŪ ā"},
	{0x3e7, "į    ė  ī ņōķ     ų   ũū"},
	{0x47e, "‾"},
	{0x4a1, "。「」、・ヲァィゥェォャュョッーアイウエオカキクケコサシスセソタチツテトナニヌネノハヒフヘホマミムメモヤユヨラリルレロワン゛゜"},
	{0x5ac, "،"},
	{0x5bb, "؛   ؟ ءآأؤإئابةتثجحخدذرزسشصضطظعغ     ـفقكلمنهوىي\u064b\u064c\u064d\u064e\u064f\u0650\u0651\u0652"},
	{0x6a1, "ђѓёєѕіїјљњћќґўџ№ЂЃЁЄЅІЇЈЉЊЋЌҐЎЏюабцдефгхийклмнопярстужвьызшэщчъЮАБЦДЕФГХИЙКЛМНОПЯРСТУЖВЬЫЗШЭЩЧЪ"},
	{0x7a1, "ΆΈΉΊΪ ΌΎΫ Ώ  ΅― άέήίϊΐόύϋΰώ     ΑΒΓΔΕΖΗΘΙΚΛΜΝΞΟΠΡΣ ΤΥΦΧΨΩ"},
	{0x7e1, "αβγδεζηθικλμνξοπρσςτυφχψω"},
	{0x8a1, "⎷  ⌠⌡ ⎡⎣⎤⎦⎛⎝⎞⎠⎨⎬"},
	{0x8bc, "≤≠≥∫∴∝∞  ∇  ∼≃   ⇔⇒≡"},
	{0x8d6, "√   ⊂⊃∩∪∧∨"},
	{0x8ef, "∂"},
	{0x8f6, "ƒ    ←↑→↓"},
	{0x9e0, "◆▒␉␌␍␊  ␤␋┘┐┌└┼⎺⎻─⎼⎽├┤┴┬│"},
	{0xaa1, "\u2003\u2002\u2004\u2005\u2007\u2008\u2009\u200a—–   …‥⅓⅔⅕⅖⅗⅘⅙⅚℅  ‒"},
	{0xac3, "⅛⅜⅝⅞  ™"},
	{0xad0, "‘’“”℞‰′″ ✝"},
	{0xaec, "♣♦♥ ✠†‡✓✗♯♭♂♀☎⌕℗‸‚„"},
	{0xbc2, "⊤ ⌊     ∘ ⎕ ⊥○   ⌈"},
	{0xbdc, "⊣"},
	{0xbfc, "⊢"},
	{0xcdf, "‗אבגדהוזחטיךכלםמןנסעףפץצקרשת"},
	{0xda1, "กขฃคฅฆงจฉชซฌญฎฏฐฑฒณดตถทธนบปผฝพฟภมยรฤลฦวศษสหฬอฮฯะ\u0e31าำ\u0e34\u0e35\u0e36\u0e37\u0e38\u0e39\u0e3a    ฿เแโใไๅๆ\u0e47\u0e48\u0e49\u0e4a\u0e4b\u0e4c\u0e4d  ๐๑๒๓๔๕๖๗๘๙"},
	{0xea1, "ㄱㄲㄳㄴㄵㄶㄷㄸㄹㄺㄻㄼㄽㄾㄿㅀㅁㅂㅃㅄㅅㅆㅇㅈㅉㅊㅋㅌㅍㅎㅏㅐㅑㅒㅓㅔㅕㅖㅗㅘㅙㅚㅛㅜㅝㅞㅟㅠㅡㅢㅣᆨᆩᆪᆫᆬᆭᆮᆯᆰᆱᆲᆳᆴᆵᆶᆷᆸᆹᆺᆻᆼᆽᆾᆿᇀᇁᇂㅭㅱㅸㅿㆁㆄㆆㆍㆎᇫᇰᇹ"},
	{0x13bc, "ŒœŸ"},
	{0x20ac, "€"},
}

// olderRunes is olderKeysyms by keysym.
var olderRunes = map[Key]rune{}

func init() {
	for _, row := range olderKeysyms {
		key := row.first
		for _, r := range row.characters {
			if r != ' ' {
				olderRunes[key] = r
			}
			key++
		}
	}
}
