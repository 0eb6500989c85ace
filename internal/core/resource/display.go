package resource

import (
	"cmp"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// maxDisplayName is the greatest length of a display name in characters.
const maxDisplayName = 128

// NormalDisplayName returns a display name in the form in which it is stored, NFC, so that the same
// name typed on two machines is the same text.
func NormalDisplayName(s string) string {
	if !utf8.ValidString(s) {
		return s // Validate refuses this text
	}
	return norm.NFC.String(s)
}

// PersonDisplayName returns a valid display name for a person whose name is written as s, or "". It leaves out
// the characters that a display name must not contain. It does not refuse the name, because the name comes
// from a provider and not from the caller.
func PersonDisplayName(s string) string {
	s = strings.Map(func(r rune) rune {
		switch {
		case unicode.IsSpace(r):
			return ' '
		case IsHidden(r):
			return -1
		}
		return r
	}, strings.ToValidUTF8(s, ""))
	runes := []rune(norm.NFC.String(strings.TrimSpace(s)))
	return strings.TrimSpace(string(runes[:min(len(runes), maxDisplayName)]))
}

// displayName checks an optional display name.
func (p *Problems) displayName(s string) {
	switch {
	case !Storable(s) || strings.ContainsFunc(s, IsHidden):
		p.Add("display_name", "must not contain line breaks, other controls, or "+
			"characters that change the direction of text")
	case utf8.RuneCountInString(s) > maxDisplayName:
		p.Add("display_name", "must have at most 128 characters")
	case strings.TrimSpace(s) != s:
		p.Add("display_name", "must not begin or end with a space")
	}
}

// IsHidden reports whether a character is invisible but changes the visible text: a control
// character, or a character that reorders or formats text. Joiners are not hidden, because
// some scripts need them.
func IsHidden(r rune) bool {
	const nonJoiner, joiner = '\u200c', '\u200d'
	return unicode.IsControl(r) || r == '\u2028' || r == '\u2029' ||
		unicode.Is(unicode.Cf, r) && r != nonJoiner && r != joiner
}

// Title returns the name that is shown to people: the display name, or the name if there is none.
func (g Group) Title() string { return cmp.Or(g.DisplayName, g.Name) }

// Label returns the title of a group for pages on which people decide whether they trust the group. Display
// names are not unique. So the name follows the title, unless the title is only another spelling of the name.
func (g Group) Label() string {
	if g.DisplayName == "" || Identifier(g.DisplayName) == strings.ReplaceAll(g.Name, " ", "-") {
		return g.Title()
	}
	return g.DisplayName + " (" + g.Name + ")"
}

// Titled returns the name for a group that a person calls typed, and the display name if it differs
// from the name.
func Titled(typed string) (name, display string) {
	typed = strings.TrimSpace(typed)
	if name = Identifier(typed); name == typed {
		return name, ""
	}
	return name, NormalDisplayName(typed)
}

// Title returns the name that is shown to people: the display name, or the name if there is none.
func (i Identity) Title() string { return cmp.Or(i.DisplayName, i.Name) }

// Identifier returns a valid group name that is made from a title: in lower case, without accents, and with
// hyphens in place of other characters. It returns "" if no usable character is left.
func Identifier(title string) string {
	if namePattern.MatchString(title) {
		return title
	}
	var b strings.Builder
	gap := false
	for _, r := range unaccented(title) {
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9', r == '.', r == '_':
			if gap && b.Len() > 0 {
				b.WriteByte('-')
			}
			b.WriteRune(r)
			gap = false
		case !unicode.Is(unicode.Mn, r):
			gap = true
		}
	}
	name := b.String()
	return strings.TrimRight(name[:min(len(name), MaxPathName)], "-")
}

// unaccented returns s in lower case, with accents as separate characters.
func unaccented(s string) string {
	return norm.NFKD.String(strings.ToLower(strings.ReplaceAll(s, "ß", "ss")))
}
