package selftest

import (
	"strings"
	"testing"
)

func TestUnprivileged(t *testing.T) {
	const good = `Name:	deskagent
Uid:	1000	1000	1000	1000
Gid:	1000	1000	1000	1000
NSpid:	40
CapInh:	0000000000000000
CapPrm:	0000000000000000
CapEff:	0000000000000000
CapBnd:	0000000000000000
CapAmb:	0000000000000000
NoNewPrivs:	1
Seccomp:	2
Seccomp_filters:	1
`
	if ok, detail := unprivileged(good); !ok {
		t.Errorf("got %s, want all well", detail)
	}
	for _, change := range [][2]string{
		{"Uid:	1000	1000", "Uid:	1000	0"},
		{"Gid:	1000	1000", "Gid:	0	0"},
		{"CapBnd:	0000000000000000", "CapBnd:	00000000a80425fb"},
		{"CapEff:	0000000000000000", "CapEff:	0000000000000001"},
		{"NoNewPrivs:	1", "NoNewPrivs:	0"},
		{"Seccomp:	2", "Seccomp:	0"},
		{"CapAmb:	0000000000000000\n", ""},
	} {
		if ok, _ := unprivileged(strings.Replace(good, change[0], change[1], 1)); ok {
			t.Errorf("with %q all is said to be well", change[1])
		}
	}
}
