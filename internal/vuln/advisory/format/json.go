package format

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// maxDepth is the maximum nesting depth of JSON and YAML. Real records have a dozen levels.
const maxDepth = 64

// maxItems is the maximum number of members of objects and elements of arrays in a record. An empty element needs three
// bytes of text, but a hundred times as much memory.
const maxItems = 1 << 18

var (
	errDepth = fmt.Errorf("is nested deeper than %d levels", maxDepth)
	errItems = fmt.Errorf("has more than %d values", maxItems)
)

// A reader is a pull parser for one JSON value. The strings that it returns share the memory of the text, so that a
// record needs one allocation instead of one per field. After an error, which is stored in err, it returns only zero
// values.
//
// It is several times faster than encoding/json, and accepts the same texts, except texts that exceed maxDepth or
// maxItems.
type reader struct {
	s     string
	i     int
	depth int
	items int
	err   error
}

// newReader returns a reader of text, which must be valid UTF-8.
func newReader(text string) *reader {
	r := &reader{s: text}
	if !utf8.ValidString(text) {
		r.fail(errors.New("is not valid UTF-8"))
	}
	return r
}

// end checks that nothing follows the value.
func (r *reader) end() error {
	if r.next(); r.err == nil && r.i < len(r.s) {
		r.expected("the end")
	}
	return r.err
}

func (r *reader) fail(err error) {
	if r.err == nil {
		r.err = err
	}
	r.i = len(r.s)
}

func (r *reader) expected(token string) {
	r.fail(fmt.Errorf("is invalid JSON: expected %s at byte %d", token, r.i))
}

// next skips white space and returns the byte after it, or 0 at the end.
func (r *reader) next() byte {
	for ; r.i < len(r.s); r.i++ {
		switch c := r.s[r.i]; c {
		case ' ', '\n', '\t', '\r':
		default:
			return c
		}
	}
	return 0
}

// literal consumes word if it is next.
func (r *reader) literal(word string) bool {
	if r.next(); strings.HasPrefix(r.s[r.i:], word) {
		r.i += len(word)
		return true
	}
	return false
}

// open consumes the bracket that starts an object or an array. It returns false for
// null, which means an empty object or array. kind is used in errors.
func (r *reader) open(bracket byte, kind string) bool {
	switch c := r.next(); {
	case c == 'n' && r.literal("null"):
		return false
	case c != bracket:
		r.expected(kind)
		return false
	}
	if r.depth++; r.depth > maxDepth {
		r.fail(errDepth)
		return false
	}
	r.i++
	return true
}

// more reports whether another member follows. It consumes the comma before the member, or the closing bracket.
func (r *reader) more(bracket byte, first bool) bool {
	c := r.next()
	switch {
	case r.err != nil:
		return false
	case c == bracket:
		r.i++
		r.depth--
		return false
	case !first && c != ',':
		r.expected("a comma")
		return false
	case !first:
		r.i++
	}
	if r.items++; r.items > maxItems {
		r.fail(errItems)
		return false
	}
	return true
}

// object yields the keys of an object: for key := range r.object { … }. The caller must read or skip the value of
// each key.
func (r *reader) object(yield func(key string) bool) {
	if !r.open('{', "an object") {
		return
	}
	for first := true; r.more('}', first); first = false {
		if r.next() != '"' {
			r.expected("a key")
			return
		}
		key := r.text()
		if r.next() != ':' {
			r.expected("a colon")
			return
		}
		r.i++
		if !yield(key) {
			return
		}
	}
}

// A textField is a key of an object and the destination of its text.
type textField struct {
	key string
	to  *string
}

// textFields reads the texts of an object, and skips keys that are not in fields.
func (r *reader) textFields(fields ...textField) {
	for key := range r.object {
		if i := slices.IndexFunc(fields, func(f textField) bool { return f.key == key }); i >= 0 {
			*fields[i].to = r.text()
		} else {
			r.skip()
		}
	}
}

// array yields once for each element. The caller must read or skip the element.
func (r *reader) array(yield func() bool) {
	if !r.open('[', "an array") {
		return
	}
	for first := true; r.more(']', first); first = false {
		if !yield() {
			return
		}
	}
}

// texts reads an array of strings.
func (r *reader) texts() []string {
	var texts []string
	for range r.array {
		texts = append(texts, r.text())
	}
	return texts
}

// text reads a string. It returns "" for null.
func (r *reader) text() string {
	if c := r.next(); c != '"' {
		if c != 'n' || !r.literal("null") {
			r.expected("a string")
		}
		return ""
	}
	r.i++
	start := r.i
	for ; r.i < len(r.s); r.i++ {
		switch c := r.s[r.i]; {
		case c == '"':
			r.i++
			return r.s[start : r.i-1]
		case c == '\\':
			return r.unescape(start)
		case c < ' ':
			r.expected("no control character")
			return ""
		}
	}
	r.expected("the end of a string")
	return ""
}

// unescape reads the rest of a string from its first escape sequence. start is the start of the string.
func (r *reader) unescape(start int) string {
	b := append(make([]byte, 0, 2*(r.i-start)+16), r.s[start:r.i]...)
	for r.i < len(r.s) {
		c := r.s[r.i]
		r.i++
		switch {
		case c == '"':
			return string(b)
		case c == '\\':
			b = r.escape(b)
		case c < ' ':
			r.expected("no control character")
		default:
			b = append(b, c)
		}
	}
	r.expected("the end of a string")
	return ""
}

// escape reads the rest of an escape sequence after its backslash, and appends the character to b.
func (r *reader) escape(b []byte) []byte {
	if r.i == len(r.s) {
		return b
	}
	c := r.s[r.i]
	r.i++
	if index := strings.IndexByte(`"\/bfnrt`, c); index >= 0 {
		return append(b, "\"\\/\b\f\n\r\t"[index])
	}
	if c != 'u' {
		r.expected("an escape")
		return b
	}
	char := r.hex()
	if utf16.IsSurrogate(char) && strings.HasPrefix(r.s[r.i:], `\u`) {
		start := r.i
		r.i += 2
		if pair := utf16.DecodeRune(char, r.hex()); pair != utf8.RuneError || r.err != nil {
			return utf8.AppendRune(b, pair)
		}
		r.i = start // a surrogate without its second half is followed by another character
	}
	return utf8.AppendRune(b, char) // such a surrogate becomes U+FFFD
}

// hex reads four hexadecimal digits.
func (r *reader) hex() rune {
	if r.i+4 > len(r.s) {
		r.expected("four digits")
		return 0
	}
	n, err := strconv.ParseUint(r.s[r.i:r.i+4], 16, 16)
	if err != nil || r.s[r.i] == '+' {
		r.expected("four digits")
		return 0
	}
	r.i += 4
	return rune(n)
}

// raw skips a value and returns its text.
func (r *reader) raw() string {
	r.next()
	start := r.i
	r.skip()
	if r.err != nil {
		return ""
	}
	return r.s[start:r.i]
}

// elements skips an array and returns the text of each element. The limit maxItems
// applies to each element and to the array itself.
func (r *reader) elements() []string {
	var elements []string
	before := r.items
	for range r.array {
		elements = append(elements, r.raw())
		r.items = before + len(elements)
	}
	return elements
}

// skip validates a value of any type and skips it.
func (r *reader) skip() {
	switch c := r.next(); {
	case c == '{':
		for range r.object {
			r.skip()
		}
	case c == '[':
		for range r.array {
			r.skip()
		}
	case c == '"':
		r.text()
	case c == '-', '0' <= c && c <= '9':
		r.number()
	case !r.literal("true") && !r.literal("false") && !r.literal("null"):
		r.expected("a value")
	}
}

// number skips a number.
func (r *reader) number() {
	r.accept("-")
	if !r.accept("0") {
		r.digits()
	}
	if r.accept(".") {
		r.digits()
	}
	if r.accept("eE") {
		r.accept("+-")
		r.digits()
	}
}

// accept consumes the next byte if chars contains it.
func (r *reader) accept(chars string) bool {
	if r.i < len(r.s) && strings.IndexByte(chars, r.s[r.i]) >= 0 {
		r.i++
		return true
	}
	return false
}

func (r *reader) digits() {
	if !r.accept("0123456789") {
		r.expected("a digit")
	}
	for r.accept("0123456789") {
	}
}
