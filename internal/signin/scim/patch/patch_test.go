package patch_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/holdfast-dev/holdfast/internal/signin/scim/document"
	"github.com/holdfast-dev/holdfast/internal/signin/scim/patch"
)

const (
	enterprise = document.EnterpriseSchema
	user       = `{"userName":"ada","active":true,"name":{"givenName":"Ada","familyName":"L"},
		"emails":[{"type":"work","value":"w","primary":true},{"type":"home","value":"h"}],
		"` + enterprise + `":{"department":"R"}}`
	group = `{"displayName":"g","members":[{"value":"m1"},{"value":"m2","display":"Two"},{"value":"m3"}]}`
)

func apply(from, operations string) (string, error) {
	o, err := document.Parse([]byte(from))
	if err != nil {
		return "", err
	}
	body, err := document.Parse([]byte(`{"Operations":[` + operations + `]}`))
	if err != nil {
		return "", err
	}
	ops, err := patch.Parse(body)
	if err != nil {
		return "", err
	}
	o, err = patch.Apply(o, ops)
	if err != nil {
		return "", err
	}
	b, err := json.Marshal(o)
	return string(b), err
}

// canonical returns JSON with sorted keys.
func canonical(t testing.TB, text string) string {
	t.Helper()
	var v any
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatal(err, text)
	}
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// TestQuirks has one row for each way in which a directory writes a change.
func TestQuirks(t *testing.T) {
	const small = `{"userName":"a","active":true}`
	tests := map[string]struct{ from, operations, want string }{
		"booleans as text, and a capitalized op": {
			small, `{"op":"Replace","path":"active","value":"False"}`, `{"userName":"a","active":false}`,
		},
		"no path": {
			small, `{"op":"replace","value":{"active":false}}`, `{"userName":"a","active":false}`,
		},
		"no path, with a boolean as text": {
			small, `{"op":"replace","value":{"Active":"false"}}`, `{"userName":"a","active":false}`,
		},
		"a map of paths": {
			small, `{"op":"Add","value":{"name.givenName":"G","emails[type eq \"work\"].value":"w","` +
				enterprise + `:department":"D"}}`,
			`{"userName":"a","active":true,"name":{"givenName":"G"},"emails":[{"type":"work","value":"w"}],"` +
				enterprise + `":{"department":"D"}}`,
		},
		"id in a map is ignored": {
			`{"displayName":"g"}`, `{"op":"replace","value":{"id":"x","displayName":"h"}}`, `{"displayName":"h"}`,
		},
		"remove members by a list": {
			group, `{"op":"Remove","path":"members","value":[{"value":"m1"},{"value":"M3"}]}`,
			`{"displayName":"g","members":[{"value":"m2","display":"Two"}]}`,
		},
		"remove one member by a list": {
			group, `{"op":"remove","path":"Members","value":{"value":"m1"}}`,
			`{"displayName":"g","members":[{"value":"m2","display":"Two"},{"value":"m3"}]}`,
		},
		"remove members by a filter": {
			group, `{"op":"remove","path":"members[value eq \"m2\"]"}`,
			`{"displayName":"g","members":[{"value":"m1"},{"value":"m3"}]}`,
		},
		"remove all members": {
			group, `{"op":"remove","path":"members"}`, `{"displayName":"g"}`,
		},
		"an empty list removes nobody": {
			`{"members":[{"value":"m1"}]}`, `{"op":"remove","path":"members","value":[]}`, `{"members":[{"value":"m1"}]}`,
		},
		"add members twice": {
			`{"members":[{"value":"m1"}]}`, `{"op":"add","path":"members","value":[{"value":"m1"},{"value":"m2"}]}`,
			`{"members":[{"value":"m1"},{"value":"m2"}]}`,
		},
		"an address that exists": {
			`{"emails":[{"type":"work","value":"w"},{"type":"home","value":"h"}]}`,
			`{"op":"Replace","path":"emails[type eq \"work\"].value","value":"n"}`,
			`{"emails":[{"type":"work","value":"n"},{"type":"home","value":"h"}]}`,
		},
		"an address that does not exist": {
			small, `{"op":"Add","path":"emails[type eq \"work\" and primary eq \"True\"].value","value":"n"}`,
			`{"userName":"a","active":true,"emails":[{"type":"work","primary":true,"value":"n"}]}`,
		},
		"remove an address": {
			`{"emails":[{"type":"work","value":"w"}]}`, `{"op":"remove","path":"emails[type eq \"work\"]"}`, `{}`,
		},
		"remove a part of an address": {
			`{"emails":[{"type":"work","value":"w","display":"d"}]}`,
			`{"op":"remove","path":"emails[type eq \"work\"].display"}`, `{"emails":[{"type":"work","value":"w"}]}`,
		},
		"an attribute of an extension": {
			small, `{"op":"add","path":"` + enterprise + `:manager","value":{"value":"m"}}`,
			`{"userName":"a","active":true,"` + enterprise + `":{"manager":{"value":"m"}}}`,
		},
		"the last attribute of an extension": {
			`{"` + enterprise + `":{"department":"D"}}`, `{"op":"Remove","path":"` + enterprise + `:department"}`, `{}`,
		},
		"a whole extension": {
			small, `{"op":"replace","value":{"` + enterprise + `":{"department":"D"}}}`,
			`{"userName":"a","active":true,"` + enterprise + `":{"department":"D"}}`,
		},
		"an unknown extension": {
			small, `{"op":"replace","value":{"urn:example:x:1.0:User":{"shoe":44}}}`,
			`{"userName":"a","active":true,"urn:example:x:1.0:User":{"shoe":44}}`,
		},
		"an attribute of a stored unknown extension": {
			`{"urn:example:x:1.0:User":{"shoe":44}}`, `{"op":"replace","path":"urn:example:x:1.0:User:shoe","value":45}`,
			`{"urn:example:x:1.0:User":{"shoe":45}}`,
		},
		"externalId later": {
			small, `{"op":"Add","path":"externalId","value":"x"}`, `{"userName":"a","active":true,"externalId":"x"}`,
		},
		"null removes": {
			small, `{"op":"replace","value":{"active":null}}`, `{"userName":"a"}`,
		},
		"several operations": {
			small, `{"op":"Replace","path":"userName","value":"b"},{"op":"Add","path":"title","value":"T"},` +
				`{"op":"Remove","path":"active"}`, `{"userName":"b","title":"T"}`,
		},
		"a new primary address": {
			`{"emails":[{"value":"a","primary":true}]}`,
			`{"op":"add","path":"emails","value":[{"value":"b","primary":true}]}`,
			`{"emails":[{"value":"a","primary":false},{"value":"b","primary":true}]}`,
		},
		"the parts of a name": {
			`{"name":{"givenName":"A","familyName":"L"}}`, `{"op":"replace","path":"name","value":{"givenName":"B"}}`,
			`{"name":{"givenName":"B","familyName":"L"}}`,
		},
		"replace all addresses": {
			`{"emails":[{"value":"a"}]}`, `{"op":"replace","path":"emails","value":[{"value":"b"}]}`,
			`{"emails":[{"value":"b"}]}`,
		},
		"remove what is not there": {small, `{"op":"remove","path":"title"}`, small},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := apply(tt.from, tt.operations)
			if err != nil || canonical(t, got) != canonical(t, tt.want) {
				t.Errorf("%s, %v\nwant %s", got, err, tt.want)
			}
		})
	}
}

func TestRefused(t *testing.T) {
	manyOps := strings.Repeat(`{"op":"remove","path":"title"},`, patch.MaxOperations) + `{"op":"remove","path":"title"}`
	var values []string
	for i := range 2*document.MaxValues + 1 {
		values = append(values, fmt.Sprintf(`{"value":"v%d"}`, i))
	}
	tests := map[string]struct{ operations, scimType string }{
		"an unknown op":        {`{"op":"move","path":"a"}`, document.InvalidSyntax},
		"no op":                {`{"path":"a"}`, document.InvalidSyntax},
		"add without a value":  {`{"op":"add","path":"a"}`, document.InvalidValue},
		"a bad path":           {`{"op":"add","path":"a[","value":1}`, document.InvalidPath},
		"a path of a number":   {`{"op":"add","path":1,"value":1}`, document.InvalidPath},
		"no path to remove":    {`{"op":"remove"}`, document.NoTarget},
		"no path and a text":   {`{"op":"add","value":"x"}`, document.InvalidValue},
		"id":                   {`{"op":"replace","path":"id","value":"x"}`, document.Mutability},
		"meta":                 {`{"op":"replace","path":"meta.created","value":"x"}`, document.Mutability},
		"no value matches":     {`{"op":"replace","path":"emails[value co \"x\"].type","value":"y"}`, document.NoTarget},
		"a wrong boolean":      {`{"op":"replace","path":"active","value":"maybe"}`, document.InvalidValue},
		"a number for boolean": {`{"op":"replace","path":"active","value":1}`, document.InvalidValue},
		"a sub of a text":      {`{"op":"replace","path":"userName.x","value":"y"}`, document.InvalidPath},
		"a list without value": {`{"op":"remove","path":"emails","value":[{"x":"y"}]}`, document.InvalidValue},
		"too many operations":  {manyOps, document.TooMany},
		"too many values": {`{"op":"add","path":"emails","value":[` + strings.Join(values, ",") + `]}`,
			document.TooMany},
		"a text for extension": {`{"op":"add","path":"` + enterprise + `","value":"x"}`, document.InvalidValue},
	}
	for name, tt := range tests {
		_, err := apply(user, tt.operations)
		if f := (*document.Error)(nil); !errors.As(err, &f) || f.Type != tt.scimType || f.Status != 400 {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestApplyChangesACopy checks that a failed request does not change the resource.
func TestApplyChangesACopy(t *testing.T) {
	o, err := document.Parse([]byte(user))
	if err != nil {
		t.Fatal(err)
	}
	before, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	_, err = patch.Apply(o, []patch.Operation{
		{Op: patch.Replace, Path: `emails[type eq "work"].value`, Value: "x"},
		{Op: patch.Replace, Path: enterprise + ":department", Value: "x"},
		{Op: patch.Remove, Path: "name.givenName"},
		{Op: patch.Replace, Path: "id", Value: "x"},
	})
	after, _ := json.Marshal(o)
	if err == nil || string(after) != string(before) {
		t.Errorf("%v: %s\nbefore %s", err, after, before)
	}
}

// FuzzApply checks that no request breaks the engine, and that no operation changes the id.
func FuzzApply(f *testing.F) {
	for _, ops := range []string{
		`{"op":"add","path":"emails[type eq \"work\"].value","value":"x"}`, `{"op":"remove","path":"emails[type pr].value"}`,
		`{"op":"replace","value":{"a.b":{"c":[1]},"urn:x:y":{"z":null},"name":[]}}`,
		`{"op":"remove","path":"members","value":[{"value":"x"}]}`, `{"op":"add","path":"name","value":[[],{}]}`,
		`{"op":"add","path":"emails.value","value":{"id":1}}`,
	} {
		f.Add(user, ops)
		f.Add(group, ops)
	}
	f.Fuzz(func(t *testing.T, from, operations string) {
		from = `{"id":"1","x":` + from + `,"emails":[{"type":"work"},"x",3,null,[]],"name":"n"}`
		got, err := apply(from, operations)
		if refusal := (*document.Error)(nil); err != nil && !errors.As(err, &refusal) {
			t.Fatalf("%s: %v", operations, err)
		}
		if err != nil {
			return
		}
		o, err := document.Parse([]byte(got))
		if err == nil && o["id"] != "1" {
			t.Fatalf("%s: %s", operations, got)
		}
	})
}
