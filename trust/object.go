package trust

import (
	"encoding/json"
	"strings"
	"unicode/utf8"
)

// An object is the members of a JSON object, each as it is written. A token has
// some two dozen, of which a few are looked up: a list is found through faster
// than a map is made.
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

// maxMembers bounds an object, so that a long one cannot make us compare every
// name with every other for long.
const maxMembers = 512

// readObject reads JSON in UTF-8 that is one object. A name that is given twice
// would be read one way here and another elsewhere, so it is refused.
func readObject(text []byte) (object, bool) {
	if !utf8.Valid(text) || !json.Valid(text) { // so that what follows need not look twice
		return nil, false
	}
	b := string(text)
	i := space(b, 0)
	if b[i] != '{' {
		return nil, false
	}
	all := make(object, 0, 32)
	for {
		i = space(b, i+1) // after the brace or a comma
		if b[i] == '}' {
			return all, true
		}
		end := stringEnd(b, i)
		name, ok := unquote(b[i:end])
		if !ok || all.get(name) != "" || len(all) == maxMembers {
			return nil, false
		}
		i = space(b, space(b, end)+1) // after the colon
		end = valueEnd(b, i)
		all = append(all, member{name, b[i:end]})
		if i = space(b, end); b[i] == '}' {
			return all, true
		}
	}
}

// space returns where what follows b[i] begins, white space left out.
func space(b string, i int) int {
	for b[i] == ' ' || b[i] == '\t' || b[i] == '\n' || b[i] == '\r' {
		i++
	}
	return i
}

// stringEnd returns where the string ends that begins at b[i].
func stringEnd(b string, i int) int {
	for i++; b[i] != '"'; i++ {
		if b[i] == '\\' {
			i++
		}
	}
	return i + 1
}

// valueEnd returns where the value ends that begins at b[i], within an object.
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
				return i // the end of a number or a word, and of all
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

// wordEnd is the length of the number or the word that b begins with.
func wordEnd(b string) int { return strings.IndexAny(b, ",}] \t\n\r") }

// unquote returns a value that is text.
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
