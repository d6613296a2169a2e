package driver_test

import (
	"testing"

	"github.com/deskagent/deskagent/driver"
)

// TestOlderKeysyms looks at the ends of rows and at what lies beside a gap.
func TestOlderKeysyms(t *testing.T) {
	for key, want := range map[driver.Key]rune{
		0x1a1: 'Ą', 0x1a5: 'Ľ', 0x1ff: '˙', 0x4df: '゜', 0x6c6: 'ф', 0x6ff: 'Ъ', 0x7e1: 'α', 0x7f9: 'ω', 0xcfa: 'ת', 0x5f2: '\u0652', 0x20ac: '€', 0x13be: 'Ÿ',
		0x1a4: 0, 0x6a0: 0, 0x700: 0, 0x7fa: 0, driver.KeyReturn: 0, driver.KeyAltGr: 0, 0xfe50: 0,
	} {
		got, ok := key.Rune()
		if got != want || ok != (want != 0) {
			t.Errorf("%#x: got %q, %v, want %q", uint32(key), got, ok, want)
		}
	}
}
