package issuers

import (
	"encoding/json"
	"strings"
	"unicode/utf8"
)

// An object holds the members of a JSON object. Each value is its JSON text. A
// slice is faster than a map, because a token has about 24 members and only a
// few are looked up.
type object []member

type member struct{ name, value string }

// get returns the value of a member, or "" if there is none.
func (o object) get(name string) string {
	for i := range o {
		if o[i].name == name {
			return o[i].value
		}
	}
	return ""
}

// maxMembers is the greatest number of members of an object. It is limited, because each name is compared with every
// other name.
const maxMembers = 512

// readObject parses UTF-8 JSON that is one object. It refuses a repeated name,
// which other parsers might read differently.
func readObject(text []byte) (object, bool) {
	if !utf8.Valid(text) || !json.Valid(text) { // the code below relies on valid JSON
		return nil, false
	}
	b := string(text)
	i := space(b, 0)
	if b[i] != '{' {
		return nil, false
	}
	members := make(object, 0, 32)
	for {
		i = space(b, i+1) // skips the brace or the comma
		if b[i] == '}' {
			return members, true
		}
		end := stringEnd(b, i)
		name, ok := unquote(b[i:end])
		if !ok || members.get(name) != "" || len(members) == maxMembers {
			return nil, false
		}
		i = space(b, space(b, end)+1) // skips the colon
		end = valueEnd(b, i)
		members = append(members, member{name, b[i:end]})
		if i = space(b, end); b[i] == '}' {
			return members, true
		}
	}
}

// space returns the index of the first character at or after b[i] that is not
// white space.
func space(b string, i int) int {
	for b[i] == ' ' || b[i] == '\t' || b[i] == '\n' || b[i] == '\r' {
		i++
	}
	return i
}

// stringEnd returns the end of the string that begins at b[i].
func stringEnd(b string, i int) int {
	for i++; b[i] != '"'; i++ {
		if b[i] == '\\' {
			i++
		}
	}
	return i + 1
}

// valueEnd returns the end of the value that begins at b[i], within an object.
func valueEnd(b string, i int) int {
	for depth := 0; ; {
		switch b[i] {
		case '"':
			i = stringEnd(b, i)
		case '{', '[':
			depth++
			i++
		case '}', ']':
			if depth == 0 {
				return i // the literal and the object end here
			}
			depth--
			i++
		default:
			if depth == 0 {
				return i + wordEnd(b[i:])
			}
			i++
		}
		if depth == 0 {
			return i
		}
	}
}

// wordEnd returns the length of the number or literal at the start of b.
func wordEnd(b string) int { return strings.IndexAny(b, ",}] \t\n\r") }

// unquote returns the text of a JSON string. It returns false for any other value.
func unquote(v string) (string, bool) {
	if v == "" || v[0] != '"' {
		return "", false
	}
	if strings.IndexByte(v, '\\') < 0 {
		return v[1 : len(v)-1], true
	}
	var s string
	err := json.Unmarshal([]byte(v), &s)
	return s, err == nil
}

func isNumber(v string) bool { return v != "" && (v[0] == '-' || v[0] >= '0' && v[0] <= '9') }
