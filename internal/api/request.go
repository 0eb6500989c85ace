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

	"github.com/holdfast-dev/holdfast/internal/api/wire"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
)

// read fills in a request from its body, then its query, then its path. The path
// takes precedence.
func (g *gateway) read(
	ctx context.Context, w http.ResponseWriter, r *http.Request, b binding, params map[string]string, in proto.Message,
) error {
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
	if b.body == "" && (isForm(r) || b.takesJSON(r)) {
		form, err := g.formBody(ctx, w, r, b)
		if err != nil {
			return err
		}
		query = strings.Trim(query+"&"+form, "&")
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

// isForm reports whether the body is a form, which is read like a query.
func isForm(r *http.Request) bool {
	media, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	return r.Method == http.MethodPost && err == nil && media == "application/x-www-form-urlencoded"
}

// takesJSON reports whether a request to the token service may have its parameters in
// JSON, as older clients send them. If the request has a query, the body is not read.
func (b binding) takesJSON(r *http.Request) bool {
	return b.exchange && r.Method == http.MethodPost && r.URL.RawQuery == ""
}

// formBody returns the body of a request in the form of a query. If the method
// accepts JSON, a body that begins with a brace is JSON, independently of its
// Content-Type.
func (g *gateway) formBody(ctx context.Context, w http.ResponseWriter, r *http.Request, b binding) (string, error) {
	body, err := g.body(ctx, w, r)
	if err != nil {
		return "", err
	}
	if b.takesJSON(r) && len(body) > 0 && body[0] == '{' { // a form never begins with a brace
		return jsonAsQuery(body, b.input)
	}
	if !isForm(r) {
		return "", nil // any other body is ignored
	}
	return string(body), nil
}

// jsonAsQuery returns a JSON object of strings and lists of strings as a query. It
// returns fault.InvalidArgument for a key that is not a field of d or is given
// twice, and for other values.
func jsonAsQuery(body []byte, d protoreflect.MessageDescriptor) (string, error) {
	if !json.Valid(body) {
		return "", fault.Field("body", "is not JSON")
	}
	query := url.Values{}
	dec := json.NewDecoder(bytes.NewReader(body))
	_, _ = dec.Token() // the opening brace of valid JSON
	for dec.More() {
		key, _ := dec.Token()
		name, _ := key.(string) // never fails, because a key is a string
		var value json.RawMessage
		_ = dec.Decode(&value)
		var text string
		var list []string
		switch path, field := queryField(d, name); {
		case field == nil:
			return "", fault.Field(name, "unknown field")
		case query.Has(path):
			return "", fault.Field(path, "is given twice")
		case string(value) == "null":
		case json.Unmarshal(value, &text) == nil:
			query[path] = []string{text}
		case field.IsList() && json.Unmarshal(value, &list) == nil:
			query[path] = list
		default:
			return "", fault.Field(path, "must be %s", expectation(field))
		}
	}
	return query.Encode(), nil
}

// bodyType returns the type of a binding's body. If the body is a list, it returns the
// type of the items.
func (b binding) bodyType() protoreflect.MessageDescriptor {
	if b.body == "*" {
		return b.input
	}
	return b.input.Fields().ByName(protoreflect.Name(b.body)).Message()
}

// decodeInto reads a body into the field of a request that contains the body.
func decodeInto(body []byte, b binding, in proto.Message) error {
	if f := b.input.Fields().ByName(protoreflect.Name(b.body)); f != nil && f.IsList() { // the body is a JSON array
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

// bodyOf returns the message in a request that contains the body. It creates the
// message even for an empty body, which is an empty resource.
func bodyOf(in proto.Message, field string) proto.Message {
	if field == "*" {
		return in
	}
	m := in.ProtoReflect()
	return m.Mutable(m.Descriptor().Fields().ByName(protoreflect.Name(field))).Message().Interface()
}

// body reads the body of a call to its end, within the limits of the caller.
func (g *gateway) body(ctx context.Context, w http.ResponseWriter, r *http.Request) (body []byte, err error) {
	k := callOf(ctx)
	stop := func() { _ = http.NewResponseController(w).SetReadDeadline(time.Now()) } // writers of tests have no deadline
	err = g.chain.read(k, stop, func() error {
		body, err = readBody(w, r, min(g.maxBody, k.maxMessage()))
		return err
	})
	return body, err
}

// readBody reads a body to its end. It ignores the Content-Type, because every body
// is JSON.
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

// respell replaces lowerCamel keys of a JSON object by the snake_case names that
// some fields have in JSON. It does not change text that is not valid JSON;
// decodeBody reports that.
func respell(body []byte, d protoreflect.MessageDescriptor) []byte {
	names := map[string]string{}
	for i := range d.Fields().Len() {
		if f := d.Fields().Get(i); wire.SnakeInJSON(f) {
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

// Patterns of protojson's errors. protojson varies the spaces in its errors so that
// programs do not depend on the whole text.
var (
	unknownField = regexp.MustCompile(`unknown field "(.*)"`)
	badValue     = regexp.MustCompile(`invalid value for (\w+) (?:field|type) (\w+)`)
	duplicate    = regexp.MustCompile(`duplicate (?:field|map key) "(.*)"`)
	alreadySet   = regexp.MustCompile(`oneof .* is already set`)
	position     = regexp.MustCompile(`\(line (\d+):(\d+)\)`)
)

// decodeBody reads JSON into m. It returns fault.InvalidArgument about the wrong key
// if it is known, and about the body otherwise.
func decodeBody(body []byte, m proto.Message) error {
	if len(body) == 0 {
		return nil
	}
	err := protojson.Unmarshal(body, m)
	if err == nil {
		return nil
	}
	text := err.Error()
	where, name := "", ""
	if found := position.FindStringSubmatch(text); found != nil {
		where = " at line " + found[1] + ", column " + found[2]
		line, _ := strconv.Atoi(found[1]) // the pattern matches only digits
		column, _ := strconv.Atoi(found[2])
		name = keyAt(body, line, column)
	}
	if key := unknownField.FindStringSubmatch(text); key != nil {
		return fault.Field(key[1], "unknown field")
	}
	if key := duplicate.FindStringSubmatch(text); key != nil {
		return fault.Field(key[1], "is given twice")
	}
	if key := badValue.FindStringSubmatch(text); key != nil {
		if key[2] != "value" { // protojson's name for the values of every map
			name = key[2]
		}
		return fault.Field(cmp.Or(name, key[2]), "is not a valid %s%s", key[1], where)
	}
	if name != "" && json.Valid(body) {
		reason := "has a value that this field does not accept"
		if alreadySet.MatchString(text) {
			reason = "cannot be combined with another field of the request"
		}
		return fault.Field(name, "%s%s", reason, where)
	}
	return fault.Field("body", "is not the JSON of this request%s", where)
}

// keyAt returns the innermost key of a JSON text whose value contains a position, or
// "" if there is none.
func keyAt(body []byte, line, column int) string {
	type level struct {
		key    string
		object bool
	}
	levels, wantKey, target := []level{{}}, false, offset(body, line, column)
	dec := json.NewDecoder(bytes.NewReader(body))
	for {
		token, err := dec.Token()
		in := &levels[len(levels)-1]
		if key, ok := token.(string); ok && wantKey {
			in.key = key
		}
		if err != nil || dec.InputOffset() > target {
			return in.key
		}
		switch token {
		case json.Delim('{'), json.Delim('['):
			wantKey = token == json.Delim('{')
			levels = append(levels, level{in.key, wantKey})
		case json.Delim('}'), json.Delim(']'):
			levels = levels[:len(levels)-1]
			wantKey = levels[len(levels)-1].object
		default: // the token is a key or a value
			wantKey = in.object && !wantKey
		}
	}
}

// offset returns the offset of a line and a column in a text. protojson counts
// columns in characters.
func offset(text []byte, line, column int) int64 {
	n := 0
	for ; line > 1; line-- {
		n += bytes.IndexByte(text[n:], '\n') + 1
	}
	for ; column > 1 && n < len(text); column-- {
		_, size := utf8.DecodeRune(text[n:])
		n += size
	}
	return int64(n)
}

// noFilter makes PopulateQueryParameters read every key.
var noFilter = utilities.NewDoubleArray(nil)

// readQuery fills in fields from the query, under their names in snake_case or
// lowerCamel. It ignores keys that name no field, and keys that name a field of the
// path or the body. It never ignores validate_only, because the call would then make
// a change that the client only wanted to validate. The error lists every invalid
// value.
func readQuery(raw string, b binding, params map[string]string, in proto.Message) error {
	query, err := url.ParseQuery(raw)
	if err != nil {
		return fault.Field("query", "is malformed")
	}
	var bad wire.Problems
	given := map[string]bool{}
	for _, key := range slices.Sorted(maps.Keys(query)) {
		path, field := queryField(b.input, key)
		if _, bound := params[path]; field == nil || bound || inBody(b, path) {
			continue
		}
		problem := ""
		switch {
		case given[path], len(query[key]) > 1 && !field.IsList():
			problem = "is given more than once"
		case slices.ContainsFunc(query[key], func(v string) bool { return !utf8.ValidString(v) }):
			problem = "must be valid UTF-8"
		case runtime.PopulateQueryParameters(in, url.Values{path: query[key]}, noFilter) != nil:
			problem = "must be " + expectation(field)
		}
		given[path] = true
		if problem != "" {
			bad.Add(fault.Field(path, "%s", problem))
		}
	}
	return bad.Err()
}

// inBody reports whether the field at path is read from the body.
func inBody(b binding, path string) bool {
	if b.body == "*" {
		return path != "validate_only"
	}
	return path == b.body || strings.HasPrefix(path, b.body+".")
}

// queryField returns the field that a dotted key names, and its path. The path has the
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

// expectation describes the valid query values of a field.
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

// inferMask sets the mask of an update that has none: it names the keys of the body.
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
	// For a body without keys, the mask has one empty path.
	mask.Paths = slices.DeleteFunc(mask.Paths, func(path string) bool { return path == "" })
	m.Set(b.mask, protoreflect.ValueOfMessage(mask.ProtoReflect()))
	return nil
}
