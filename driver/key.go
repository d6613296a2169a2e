package driver

import (
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// A Key is one key of a keyboard, as an X keysym: the number that X, and RFB after it, give to the symbol on the
// key (X Window System Protocol, appendix A). Characters of Latin-1 are their own keysyms, other characters are
// 0x01000000 plus the code point. The zero Key is no key.
type Key uint32

// The modifiers. Where a keyboard has two, these are the left ones.
const (
	KeyShift    Key = 0xffe1
	KeyControl  Key = 0xffe3
	KeyAlt      Key = 0xffe9
	KeySuper    Key = 0xffeb
	KeyAltGr    Key = 0xfe03
	KeyCapsLock Key = 0xffe5
	KeyNumLock  Key = 0xff7f
)

// Keys that text is typed with.
const (
	KeyReturn Key = 0xff0d
	KeyTab    Key = 0xff09
	KeySpace  Key = ' '
)

const unicodeKeysym = 0x01000000

// keyNames is the table of names. The first name of a row is the one String returns, an X keysym name; all are
// matched in any case, with underscores, hyphens and spaces left out. The aliases are those that models and the
// published helpers use: row K1 of the field cases.
var keyNames = []struct {
	key   Key
	names string
}{
	{KeyReturn, "Return enter ret newline linefeed numpadreturn"},
	{0xff1b, "Escape esc"},
	{KeyTab, "Tab"},
	{0xfe20, "ISO_Left_Tab backtab"},
	{KeySpace, "space spacebar"},
	{0xff08, "BackSpace bksp bs"},
	{0xffff, "Delete del forwarddelete"},
	{0xff63, "Insert ins"},
	{0xff50, "Home"},
	{0xff57, "End"},
	{0xff58, "Begin"},
	{0xff55, "Page_Up pgup prior"},
	{0xff56, "Page_Down pgdn pgdown next"},
	{0xff51, "Left arrowleft leftarrow"},
	{0xff52, "Up arrowup uparrow"},
	{0xff53, "Right arrowright rightarrow"},
	{0xff54, "Down arrowdown downarrow"},
	{KeyShift, "Shift_L shift leftshift shiftleft lshift"},
	{0xffe2, "Shift_R rightshift shiftright rshift"},
	{KeyControl, "Control_L ctrl control leftctrl ctrlleft lctrl leftcontrol controlleft ctl"},
	{0xffe4, "Control_R rightctrl ctrlright rctrl rightcontrol controlright"},
	{KeyAlt, "Alt_L alt option opt leftalt altleft lalt leftoption optionleft"},
	{0xffea, "Alt_R rightalt altright ralt rightoption optionright"},
	{KeySuper, "Super_L super meta cmd command win windows os osleft leftmeta metaleft lmeta leftsuper superleft leftcmd lcmd cmdleft leftwin lwin winleft"},
	{0xffec, "Super_R osright rightmeta metaright rmeta rightsuper superright rightcmd rcmd cmdright rightwin rwin winright"},
	{0xffe7, "Meta_L"},
	{0xffe8, "Meta_R"},
	{0xffed, "Hyper_L hyper"},
	{0xffee, "Hyper_R"},
	{KeyAltGr, "ISO_Level3_Shift altgr altgraph"},
	{KeyCapsLock, "Caps_Lock caps capital"},
	{KeyNumLock, "Num_Lock"},
	{0xff14, "Scroll_Lock"},
	{0xfe11, "ISO_Level5_Shift"},
	{0xff7e, "Mode_switch"},
	{0xff20, "Multi_key compose"},
	{0xff67, "Menu contextmenu apps application"},
	{0xff61, "Print printscreen prntscrn prtsc prtscr prtscn sysrq snapshot"},
	{0xff13, "Pause"},
	{0xff6b, "Break"},
	{0xff6a, "Help"},
	{0xff0b, "Clear"},
	{0xff65, "Undo"},
	{0xff66, "Redo"},
	{0xff68, "Find"},
	{0xff69, "Cancel"},
	{0xff60, "Select"},
	{0xff62, "Execute"},
	{0xff23, "Henkan convert"},
	{0xff22, "Muhenkan nonconvert"},
	{0xff21, "Kanji"},
	{0xff27, "Hiragana_Katakana kanamode"},
	{0xff2a, "Zenkaku_Hankaku"},
	{0xff31, "Hangul hangulmode"},
	{0xff34, "Hangul_Hanja hanja hanjamode"},
	{0xff8d, "KP_Enter numpadenter numenter"},
	{0xffab, "KP_Add add numpadadd numpadplus"},
	{0xffad, "KP_Subtract subtract numpadsubtract numpadminus"},
	{0xffaa, "KP_Multiply multiply numpadmultiply numpadstar"},
	{0xffaf, "KP_Divide divide numpaddivide numpadslash"},
	{0xffae, "KP_Decimal decimal numpaddecimal numpaddot"},
	{0xffac, "KP_Separator separator numpadcomma"},
	{0xffbd, "KP_Equal numpadequal"},
	{0xff80, "KP_Space"},
	{0xff89, "KP_Tab"},
	{0xff95, "KP_Home"},
	{0xff96, "KP_Left"},
	{0xff97, "KP_Up"},
	{0xff98, "KP_Right"},
	{0xff99, "KP_Down"},
	{0xff9a, "KP_Page_Up KP_Prior"},
	{0xff9b, "KP_Page_Down KP_Next"},
	{0xff9c, "KP_End"},
	{0xff9d, "KP_Begin"},
	{0xff9e, "KP_Insert"},
	{0xff9f, "KP_Delete"},
	{0x1008ff11, "XF86AudioLowerVolume volumedown audiovolumedown"},
	{0x1008ff12, "XF86AudioMute mute volumemute audiovolumemute"},
	{0x1008ff13, "XF86AudioRaiseVolume volumeup audiovolumeup"},
	{0x1008ff14, "XF86AudioPlay play playpause mediaplay mediaplaypause"},
	{0x1008ff31, "XF86AudioPause mediapause"},
	{0x1008ff15, "XF86AudioStop mediastop mediatrackstop"},
	{0x1008ff16, "XF86AudioPrev mediatrackprevious prevtrack previoustrack"},
	{0x1008ff17, "XF86AudioNext mediatracknext nexttrack"},
	{0x1008ff1c, "XF86AudioRecord mediarecord"},
	{0x1008ff3e, "XF86AudioRewind mediarewind"},
	{0x1008ff97, "XF86AudioForward mediafastforward"},
	{0x1008ff32, "XF86AudioMedia mediaselect launchmediaselect"},
	{0x1008ffb2, "XF86AudioMicMute micmute microphonemutetoggle"},
	{0x1008ff02, "XF86MonBrightnessUp brightnessup"},
	{0x1008ff03, "XF86MonBrightnessDown brightnessdown"},
	{0x1008ff05, "XF86KbdBrightnessUp"},
	{0x1008ff06, "XF86KbdBrightnessDown"},
	{0x1008ff26, "XF86Back browserback"},
	{0x1008ff27, "XF86Forward browserforward"},
	{0x1008ff28, "XF86Stop browserstop"},
	{0x1008ff29, "XF86Refresh refresh browserrefresh"},
	{0x1008ff18, "XF86HomePage browserhome"},
	{0x1008ff1b, "XF86Search browsersearch"},
	{0x1008ff30, "XF86Favorites browserfavorites"},
	{0x1008ff2e, "XF86WWW"},
	{0x1008ff19, "XF86Mail launchmail"},
	{0x1008ff1d, "XF86Calculator calculator launchcalculator launchapp2"},
	{0x1008ff33, "XF86MyComputer launchmycomputer launchapp1"},
	{0x1008ff5d, "XF86Explorer"},
	{0x1008ff81, "XF86Tools"},
	{0x1008ff57, "XF86Copy copy"},
	{0x1008ff58, "XF86Cut cut"},
	{0x1008ff6d, "XF86Paste paste"},
	{0x1008ff68, "XF86New"},
	{0x1008ff6b, "XF86Open open"},
	{0x1008ff77, "XF86Save save"},
	{0x1008ff56, "XF86Close"},
	{0x1008ff2c, "XF86Eject eject"},
	{0x1008ff2a, "XF86PowerOff power"},
	{0x1008ff2b, "XF86WakeUp wakeup"},
	{0x1008ff2f, "XF86Sleep sleep"},
	{0x1008ff59, "XF86Display"},
	// Characters that models spell out.
	{'+', "plus"}, {'-', "minus hyphen dash"}, {'=', "equal equals"}, {',', "comma"}, {'.', "period dot"}, {'/', "slash"},
	{'\\', "backslash"}, {';', "semicolon"}, {':', "colon"}, {'\'', "apostrophe quote singlequote"}, {'"', "quotedbl doublequote"},
	{'`', "grave backtick backquote"}, {'~', "asciitilde tilde"}, {'[', "bracketleft leftbracket openbracket"},
	{']', "bracketright rightbracket closebracket"}, {'{', "braceleft leftbrace"}, {'}', "braceright rightbrace"},
	{'(', "parenleft leftparen"}, {')', "parenright rightparen"}, {'<', "less lessthan"}, {'>', "greater greaterthan"},
	{'!', "exclam exclamation exclamationmark"}, {'@', "at"}, {'#', "numbersign hash"}, {'$', "dollar"}, {'%', "percent"},
	{'^', "asciicircum caret"}, {'&', "ampersand"}, {'*', "asterisk"}, {'_', "underscore"}, {'|', "bar pipe"},
	{'?', "question questionmark"},
}

var (
	keyTable   []KeyNames
	keysByName = map[string]Key{}
	namesByKey = map[Key]string{}
)

func init() {
	add := func(key Key, names ...string) {
		keyTable = append(keyTable, KeyNames{key, names[0], names[1:]})
		namesByKey[key] = names[0]
		for _, name := range names {
			folded := foldKeyName(name)
			if other, ok := keysByName[folded]; ok {
				panic(fmt.Sprintf("driver: key name %q stands for %v and %v", name, other, key))
			}
			keysByName[folded] = key
		}
	}
	for _, row := range keyNames {
		add(row.key, strings.Fields(row.names)...)
	}
	for i := range Key(35) {
		add(0xffbe+i, fmt.Sprintf("F%d", i+1))
	}
	for i := range Key(10) {
		add(0xffb0+i, fmt.Sprintf("KP_%d", i), fmt.Sprintf("numpad%d", i), fmt.Sprintf("num%d", i))
	}
	// The codes of web browsers.
	for r := 'a'; r <= 'z'; r++ {
		add(Key(r), fmt.Sprintf("Key%c", unicode.ToUpper(r)))
	}
	for r := '0'; r <= '9'; r++ {
		add(Key(r), fmt.Sprintf("Digit%c", r))
	}
}

// KeyNames are the names of one key that [ParseKey] knows, as they are usually written.
type KeyNames struct {
	Key     Key
	Name    string // the first choice: where X has a name for the key, that one
	Aliases []string
}

// Keys returns the table of names: everything that [ParseKey] knows but single characters.
func Keys() []KeyNames {
	table := slices.Clone(keyTable)
	for i := range table {
		table[i].Aliases = slices.Clone(table[i].Aliases)
	}
	return table
}

// foldKeyName makes the spellings of one name equal: PAGE_UP, PageUp and "page up".
func foldKeyName(name string) string {
	return strings.NewReplacer("_", "", "-", "", " ", "").Replace(strings.ToLower(name))
}

// ParseKey returns the key of a name: a single character stands for itself, in its case; longer names are those
// of the X keysyms and of what models send (ENTER, ESC, CMD, ARROWUP, PageUp and so on), in any case. There is no
// default: an unknown name is an error that wraps [ErrUnknownKey] and quotes it.
func ParseKey(name string) (Key, error) {
	if r, size := utf8.DecodeRuneInString(name); size > 0 && size == len(name) {
		if key, ok := RuneKey(r); ok {
			return key, nil
		}
	} else if key, ok := keysByName[foldKeyName(name)]; ok {
		return key, nil
	}
	const most = 40
	if len(name) > most {
		return 0, fmt.Errorf("%w %q…", ErrUnknownKey, name[:most])
	}
	return 0, fmt.Errorf("%w %q", ErrUnknownKey, name)
}

// ParseKeys parses a whole chord: one unknown name and there is none.
func ParseKeys(names []string) ([]Key, error) {
	keys := make([]Key, len(names))
	for i, name := range names {
		key, err := ParseKey(name)
		if err != nil {
			return nil, err
		}
		keys[i] = key
	}
	return keys, nil
}

// RuneKey returns the key that stands for a character. Newline and carriage return are Return, tab is Tab; other
// control characters, and what is not a character, have no key.
func RuneKey(r rune) (Key, bool) {
	switch {
	case r == '\n' || r == '\r':
		return KeyReturn, true
	case r == '\t':
		return KeyTab, true
	case r == utf8.RuneError || unicode.IsControl(r) || !utf8.ValidRune(r):
		return 0, false
	case r < 0x100:
		return Key(r), true
	}
	return unicodeKeysym + Key(r), true
}

// Rune returns the character that k stands for, and false for keys such as Escape that stand for none. A character
// may have more than one Key, as X has older keysyms for some; the one to compare by is that of [RuneKey].
func (k Key) Rune() (rune, bool) {
	switch {
	case k >= 0x20 && k < 0x7f || k >= 0xa0 && k < 0x100:
		return rune(k), true
	case k > unicodeKeysym && k <= unicodeKeysym+unicode.MaxRune:
		return rune(k - unicodeKeysym), true
	}
	r, ok := olderRunes[k]
	return r, ok
}

// Modifier reports whether k is held to change the meaning of others. The lock keys are not.
func (k Key) Modifier() bool {
	return k >= KeyShift && k <= 0xffee && k != KeyCapsLock && k != 0xffe6 || k == KeyAltGr
}

// String returns the X keysym's name, or the character itself.
func (k Key) String() string {
	if r, ok := k.Rune(); ok && k != KeySpace {
		return string(r)
	}
	if name, ok := namesByKey[k]; ok {
		return name
	}
	return fmt.Sprintf("Key(%#x)", uint32(k))
}
