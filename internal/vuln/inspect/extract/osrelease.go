package extract

import "strings"

const maxRelease = 64 << 10

// parseRelease parses an os-release file: shell assignments whose values have single, double or no quotes.
func parseRelease(content []byte) Distribution {
	var d Distribution
	var name, version string
	fields := map[string]*string{
		"ID": &d.ID, "ID_LIKE": &d.IDLike, "VERSION_ID": &d.VersionID, "VERSION_CODENAME": &d.Codename,
		"PRETTY_NAME": &d.Name, "NAME": &name, "VERSION": &version,
	}
	for line := range strings.Lines(string(content)) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		if field := fields[key]; field != nil {
			*field = text(unquote(value))
		}
	}
	if d.Name == "" {
		d.Name = text(strings.TrimSpace(name + " " + version))
	}
	return d
}

// unquote returns the value of an assignment without quotes. In double quotes a backslash escapes the next character.
func unquote(s string) string {
	if len(s) >= 2 && s[0] == '\'' && s[len(s)-1] == '\'' {
		return s[1 : len(s)-1]
	}
	if len(s) < 2 || s[0] != '"' || s[len(s)-1] != '"' {
		return s
	}
	var b strings.Builder
	for i := 1; i < len(s)-1; i++ {
		if s[i] == '\\' && i+1 < len(s)-1 {
			i++
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// text returns s, or "" if s is too long or not printable.
func text(s string) string {
	if !valid(maxText, s) {
		return ""
	}
	return s
}
