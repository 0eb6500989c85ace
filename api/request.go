package api

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"mime"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"github.com/grpc-ecosystem/grpc-gateway/v2/utilities"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	"github.com/holdfast-dev/holdfast/api/wire"
	"github.com/holdfast-dev/holdfast/fault"
)

// read fills in a request from its body, its query and its path, in that order:
// what the path says, nothing else can.
func (g *gateway) read(ctx context.Context, w http.ResponseWriter, r *http.Request, b binding, params map[string]string, in proto.Message) error {
	var body []byte
	if b.body != "" {
		var err error
		if body, err = g.body(ctx, w, r); err != nil {
			return err
		}
		body = respell(body, b.bodyType())
		if err := decodeInto(body, b, in); err != nil {
			return err
		}
	}
	query := r.URL.RawQuery
	if b.body == "" && isForm(r) {
		form, err := g.body(ctx, w, r)
		if err != nil {
			return err
		}
		query = strings.Trim(query+"&"+string(form), "&")
	}
	if query != "" {
		if err := readQuery(query, b, params, in); err != nil {
			return err
		}
	}
	if b.mask != nil {
		if err := inferMask(body, b, in); err != nil {
			return err
		}
	}
	for field, value := range params {
		if !utf8.ValidString(value) {
			return fault.Field(field, "must be valid UTF-8")
		}
		if err := runtime.PopulateFieldFromPath(in, field, value); err != nil {
			return fault.Field(field, "cannot be read from the path")
		}
	}
	return nil
}

// isForm tells whether the body is a form, which says the same as a query.
func isForm(r *http.Request) bool {
	media, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	return r.Method == http.MethodPost && err == nil && media == "application/x-www-form-urlencoded"
}

// bodyType is what the body of a binding is, or the items of one that is a list.
func (b binding) bodyType() protoreflect.MessageDescriptor {
	if b.body == "*" {
		return b.input
	}
	return b.input.Fields().ByName(protoreflect.Name(b.body)).Message()
}

// decodeInto reads a body into the part of a request that it describes.
func decodeInto(body []byte, b binding, in proto.Message) error {
	if f := b.input.Fields().ByName(protoreflect.Name(b.body)); f != nil && f.IsList() { // a JSON array
		if len(body) == 0 {
			return nil
		}
		if body[0] != '[' || !json.Valid(body) {
			return fault.Field("body", "must be a JSON array")
		}
		return decodeBody(slices.Concat([]byte(`{"`+f.JSONName()+`":`), body, []byte("}")), in)
	}
	return decodeBody(body, bodyOf(in, b.body))
}

// bodyOf returns the message that the body describes. It is made even if the
// body turns out to be empty: that is an empty resource, not none.
func bodyOf(in proto.Message, field string) proto.Message {
	if field == "*" {
		return in
	}
	m := in.ProtoReflect()
	return m.Mutable(m.Descriptor().Fields().ByName(protoreflect.Name(field))).Message().Interface()
}

// body reads the body of a call to its end, if its caller may send one.
func (g *gateway) body(ctx context.Context, w http.ResponseWriter, r *http.Request) (body []byte, err error) {
	k := callOf(ctx)
	stop := func() { _ = http.NewResponseController(w).SetReadDeadline(time.Now()) } // a test's writer has none
	err = g.chain.read(k, stop, func() error {
		body, err = readBody(w, r, min(g.maxBody, k.mostMessage()))
		return err
	})
	return body, err
}

// readBody reads a body to its end. It is JSON whatever its Content-Type says.
func readBody(w http.ResponseWriter, r *http.Request, limit int64) ([]byte, error) {
	if e := r.Header.Get("Content-Encoding"); e != "" && !strings.EqualFold(e, "identity") {
		return nil, fault.Field("body", "must not be compressed")
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, limit))
	if tooLarge := (*http.MaxBytesError)(nil); errors.As(err, &tooLarge) {
		return nil, fault.Field("body", "must have at most %d bytes", tooLarge.Limit)
	}
	if err != nil {
		return nil, fault.Field("body", "could not be read to its end")
	}
	return bytes.TrimSpace(body), nil
}

// respell gives the keys of a JSON object that are the lowerCamel of an odd field
// the name that the definition has for it. What it cannot read it leaves as it
// is, for decodeBody to say what is wrong.
func respell(body []byte, d protoreflect.MessageDescriptor) []byte {
	names := map[string]string{}
	for i := range d.Fields().Len() {
		if f := d.Fields().Get(i); wire.Odd(f) {
			names[`"`+wire.LowerCamel(f.Name())+`"`] = `"` + string(f.Name()) + `"`
		}
	}
	dec := json.NewDecoder(bytes.NewReader(body))
	if open, err := dec.Token(); len(names) == 0 || err != nil || open != json.Delim('{') {
		return body
	}
	var out []byte
	from := 0
	for dec.More() {
		key, err := dec.Token()
		text, _ := key.(string)
		end := int(dec.InputOffset())
		start := max(from, end-len(text)-2)
		if name, ok := names[string(body[start:end])]; ok {
			out = slices.Concat(out, body[from:start], []byte(name))
			from = end
		}
		var value json.RawMessage
		if err != nil || dec.Decode(&value) != nil {
			break
		}
	}
	return append(out, body[from:]...)
}

// What protojson says of a body it does not take. It varies its spaces, so that
// nobody compares whole messages.
var (
	unknownField = regexp.MustCompile(`unknown field "(.*)"`)
	badValue     = regexp.MustCompile(`invalid value for (\w+) (?:field|type) (\w+)`)
	duplicate    = regexp.MustCompile(`duplicate (?:field|map key) "(.*)"`)
	taken        = regexp.MustCompile(`oneof .* is already set`)
	position     = regexp.MustCompile(`\(line (\d+):(\d+)\)`)
)

// decodeBody reads JSON into m. It returns fault.InvalidArgument, about the key
// that is wrong or else the body with the place in it.
func decodeBody(body []byte, m proto.Message) error {
	if len(body) == 0 {
		return nil
	}
	err := protojson.Unmarshal(body, m)
	if err == nil {
		return nil
	}
	text := err.Error()
	place, name := "", ""
	if at := position.FindStringSubmatch(text); at != nil {
		place = " at line " + at[1] + ", column " + at[2]
		line, _ := strconv.Atoi(at[1])   // by the pattern
		column, _ := strconv.Atoi(at[2]) // likewise
		name = keyAt(body, line, column)
	}
	if key := unknownField.FindStringSubmatch(text); key != nil {
		return fault.Field(key[1], "unknown field")
	}
	if key := duplicate.FindStringSubmatch(text); key != nil {
		return fault.Field(key[1], "is given twice")
	}
	if key := badValue.FindStringSubmatch(text); key != nil {
		if key[2] != "value" { // what protojson calls the values of every map
			name = key[2]
		}
		return fault.Field(cmp.Or(name, key[2]), "is not a valid %s%s", key[1], place)
	}
	if name != "" && json.Valid(body) {
		why := "is not a value that it can have"
		if taken.MatchString(text) {
			why = "cannot be combined with another that is given"
		}
		return fault.Field(name, "%s%s", why, place)
	}
	return fault.Field("body", "is not the JSON of this request%s", place)
}

// keyAt returns the innermost key in whose value a place of a JSON text lies, ""
// if there is none.
func keyAt(body []byte, line, column int) string {
	type level struct {
		key    string
		object bool
	}
	levels, wantKey, at := []level{{}}, false, offset(body, line, column)
	dec := json.NewDecoder(bytes.NewReader(body))
	for {
		token, err := dec.Token()
		in := &levels[len(levels)-1]
		if key, ok := token.(string); ok && wantKey {
			in.key = key
		}
		if err != nil || dec.InputOffset() > at {
			return in.key
		}
		switch token {
		case json.Delim('{'), json.Delim('['):
			wantKey = token == json.Delim('{')
			levels = append(levels, level{in.key, wantKey})
		case json.Delim('}'), json.Delim(']'):
			levels = levels[:len(levels)-1]
			wantKey = levels[len(levels)-1].object
		default: // a key, or the value of one
			wantKey = in.object && !wantKey
		}
	}
}

// offset returns where a line and column are in a text. protojson counts columns
// in characters.
func offset(text []byte, line, column int) int64 {
	at := 0
	for ; line > 1; line-- {
		at += bytes.IndexByte(text[at:], '\n') + 1
	}
	for ; column > 1 && at < len(text); column-- {
		_, size := utf8.DecodeRune(text[at:])
		at += size
	}
	return int64(at)
}

// noFilter lets PopulateQueryParameters see every key.
var noFilter = utilities.NewDoubleArray(nil)

// readQuery fills in fields from the query, under their names in snake_case or
// lowerCamel. Keys that name no field, or one that the path or the body has,
// are ignored; but validate_only never is, lest something happen that was only
// to be tried. It reports every value it cannot take.
func readQuery(raw string, b binding, params map[string]string, in proto.Message) error {
	query, err := url.ParseQuery(raw)
	if err != nil {
		return fault.Field("query", "is malformed")
	}
	var bad []fault.Violation
	seen := map[string]bool{}
	for _, key := range slices.Sorted(maps.Keys(query)) {
		path, field := queryField(b.input, key)
		if _, bound := params[path]; field == nil || bound || inBody(b, path) {
			continue
		}
		problem := ""
		switch {
		case seen[path], len(query[key]) > 1 && !field.IsList():
			problem = "is given more than once"
		case slices.ContainsFunc(query[key], func(v string) bool { return !utf8.ValidString(v) }):
			problem = "must be valid UTF-8"
		case runtime.PopulateQueryParameters(in, url.Values{path: query[key]}, noFilter) != nil:
			problem = "must be " + expectation(field)
		}
		seen[path] = true
		if problem != "" {
			bad = append(bad, fault.Violation{Subject: path, Description: problem})
		}
	}
	if len(bad) > 0 {
		return fault.Fields(bad)
	}
	return nil
}

// inBody tells whether the field at path is the body's to say.
func inBody(b binding, path string) bool {
	if b.body == "*" {
		return path != "validate_only"
	}
	return path == b.body || strings.HasPrefix(path, b.body+".")
}

// queryField returns the field that a dotted key names, and its path in the
// names of the definition.
func queryField(d protoreflect.MessageDescriptor, key string) (path string, field protoreflect.FieldDescriptor) {
	for segment := range strings.SplitSeq(key, ".") {
		if d == nil {
			return "", nil
		}
		if field = wire.FieldNamed(d, segment); field == nil {
			return "", nil
		}
		if path != "" {
			path += "."
		}
		path += string(field.Name())
		d = nil
		if wire.Nested(field) {
			d = field.Message()
		}
	}
	return path, field
}

// expectation says what a query value of a field must be.
func expectation(f protoreflect.FieldDescriptor) string {
	switch f.Kind() {
	case protoreflect.BoolKind:
		return "true or false"
	case protoreflect.EnumKind:
		return "the name of a value of " + string(f.Enum().Name())
	case protoreflect.Int32Kind, protoreflect.Int64Kind:
		return "a whole number"
	}
	return "a valid " + f.Kind().String()
}

// inferMask gives an update without a mask one that has the keys of its body.
func inferMask(body []byte, b binding, in proto.Message) error {
	m := in.ProtoReflect()
	given, _ := m.Get(b.mask).Message().Interface().(*fieldmaskpb.FieldMask)
	if len(strings.Join(given.GetPaths(), "")) > 0 {
		return nil
	}
	mask, err := runtime.FieldMaskFromRequestBody(bytes.NewReader(body), bodyOf(in, b.body))
	if err != nil {
		return fault.Field("body", "cannot be read as an update")
	}
	mask.Paths = slices.DeleteFunc(mask.Paths, func(path string) bool { return path == "" }) // a body without keys has that one
	m.Set(b.mask, protoreflect.ValueOfMessage(mask.ProtoReflect()))
	return nil
}
