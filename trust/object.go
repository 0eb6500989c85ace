package trust

import (
	"bytes"
	"encoding/json"
	"unicode/utf8"
)

// An object is the members of a JSON object, each as it is written.
type object map[string][]byte

// readObject reads JSON in UTF-8 that is one object. A name that is given twice
// would be read one way here and another elsewhere, so it is refused.
func readObject(b []byte) (object, bool) {
	if !utf8.Valid(b) || !json.Valid(b) { // so that what follows need not look twice
		return nil, false
	}
	i := space(b, 0)
	if b[i] != '{' {
		return nil, false
	}
	all := make(object, 32)
	for {
		i = space(b, i+1) // after the brace or a comma
		if b[i] == '}' {
			return all, true
		}
		end := stringEnd(b, i)
		name, ok := text(b[i:end])
		if _, twice := all[name]; twice || !ok {
			return nil, false
		}
		i = space(b, space(b, end)+1) // after the colon
		end = valueEnd(b, i)
		all[name] = b[i:end]
		if i = space(b, end); b[i] == '}' {
			return all, true
		}
	}
}

// space returns where what follows b[i] begins, white space left out.
func space(b []byte, i int) int {
	for b[i] == ' ' || b[i] == '\t' || b[i] == '\n' || b[i] == '\r' {
		i++
	}
	return i
}

// stringEnd returns where the string ends that begins at b[i].
func stringEnd(b []byte, i int) int {
	for i++; b[i] != '"'; i++ {
		if b[i] == '\\' {
			i++
		}
	}
	return i + 1
}

// valueEnd returns where the value ends that begins at b[i], within an object.
func valueEnd(b []byte, i int) int {
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
func wordEnd(b []byte) int { return bytes.IndexAny(b, ",}] \t\n\r") }

// text returns a value that is text.
func text(v []byte) (s string, ok bool) {
	if len(v) == 0 || v[0] != '"' {
		return "", false
	}
	if bytes.IndexByte(v, '\\') < 0 {
		return string(v[1 : len(v)-1]), true
	}
	return s, json.Unmarshal(v, &s) == nil
}

func isNumber(v []byte) bool { return len(v) > 0 && (v[0] == '-' || v[0] >= '0' && v[0] <= '9') }
