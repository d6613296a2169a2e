package main

import (
	"strconv"
	"strings"
	"unicode"
)

// oneLine makes text fit for one line of a terminal.
func oneLine(s string) string {
	return strings.Join(strings.FieldsFunc(printable(s), func(r rune) bool { return r == '\n' || r == '\t' }), " ")
}

// printable makes text from outside fit for a terminal: what would move the cursor, set colours or hide something
// is written as an escape. Newlines and tabs stay.
func printable(s string) string {
	var b strings.Builder
	for _, r := range s {
		if r == '\n' || r == '\t' || unicode.IsPrint(r) {
			b.WriteRune(r)
			continue
		}
		quoted := strconv.QuoteRuneToASCII(r)
		b.WriteString(quoted[1 : len(quoted)-1])
	}
	return b.String()
}
