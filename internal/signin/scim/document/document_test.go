package document_test

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-dev/holdfast/internal/signin/scim/document"
)

func TestParse(t *testing.T) {
	o, err := document.Parse([]byte(`{"USERNAME":"a","Active":"TRUE","Emails":[{"Primary":"False","X":1}]}`))
	if err != nil {
		t.Fatal(err)
	}
	b, _ := json.Marshal(o)
	if want := `{"active":true,"emails":[{"X":1,"primary":false}],"userName":"a"}`; string(b) != want {
		t.Errorf("%s, want %s", b, want)
	}
	refused := map[string]string{
		`{`:                               document.InvalidSyntax,
		`[]`:                              document.InvalidSyntax,
		`{}{}`:                            document.InvalidSyntax,
		`{"userName":"a","username":"b"}`: document.InvalidSyntax,
		`{"active":"perhaps"}`:            document.InvalidValue,
		`{"active":1}`:                    document.InvalidValue,
		strings.Repeat(`{"a":`, document.MaxDepth) + `{}` + strings.Repeat(`}`, document.MaxDepth): document.InvalidSyntax,
		strings.Repeat(`[`, 100_000): document.InvalidSyntax,
	}
	for body, scimType := range refused {
		_, err := document.Parse([]byte(body))
		if f := (*document.Error)(nil); !errors.As(err, &f) || f.Type != scimType {
			t.Errorf("%.40s: %v", body, err)
		}
	}
}

func TestStorable(t *testing.T) {
	o, err := document.Storable(document.Object{
		"id": "x", "meta": "x", "schemas": "x", "groups": "x", "password": "hush", "userName": "a", "title": nil,
		"photos": []any{
			document.Object{"value": "https://x"}, document.Object{"value": "data:" + strings.Repeat("x", 100<<10)},
		},
	})
	b, _ := json.Marshal(o)
	if want := `{"photos":[{"value":"https://x"}],"userName":"a"}`; err != nil || string(b) != want {
		t.Errorf("%s, %v; want %s", b, err, want)
	}
	tooLarge := []document.Object{
		{"x": strings.Repeat("x", document.MaxSize)},
		{"emails": slices.Repeat([]any{"x"}, document.MaxValues+1)},
	}
	for _, o := range tooLarge {
		_, err := document.Storable(o)
		if f := (*document.Error)(nil); !errors.As(err, &f) || f.Status != 413 {
			t.Error(err)
		}
	}
}

func TestProjection(t *testing.T) {
	const body = `{"id":"1","schemas":["s"],"userName":"a","title":"t","name":{"givenName":"g","familyName":"f"},
		"emails":[{"value":"v","type":"work"}],"meta":{"version":"1"},
		"urn:ietf:params:scim:schemas:extension:enterprise:2.0:User":{"department":"d","division":"v"}}`
	tests := map[string]struct {
		only, without []string
		want          string
	}{
		"one":            {[]string{"USERNAME"}, nil, `{"id":"1","schemas":["s"],"userName":"a"}`},
		"a part":         {[]string{"name.givenName"}, nil, `{"id":"1","name":{"givenName":"g"},"schemas":["s"]}`},
		"a part of each": {[]string{"emails.value"}, nil, `{"emails":[{"value":"v"}],"id":"1","schemas":["s"]}`},
		"of an extension": {[]string{document.EnterpriseSchema + ":department"}, nil,
			`{"id":"1","schemas":["s"],"` + document.EnterpriseSchema + `":{"department":"d"}}`},
		"of the core": {[]string{document.UserSchema + ":title"}, nil, `{"id":"1","schemas":["s"],"title":"t"}`},
		"without": {
			nil, []string{"id", "emails", "name.givenName", "meta", "title", document.EnterpriseSchema},
			`{"id":"1","name":{"familyName":"f"},"schemas":["s"],"userName":"a"}`,
		},
		"both": {[]string{"name"}, []string{"name.familyName"}, `{"id":"1","name":{"givenName":"g"},"schemas":["s"]}`},
	}
	o, err := document.Parse([]byte(body))
	if err != nil {
		t.Fatal(err)
	}
	before, _ := json.Marshal(o)
	for name, tt := range tests {
		p, err := document.NewProjection(tt.only, tt.without)
		if err != nil {
			t.Fatal(err)
		}
		if b, _ := json.Marshal(p.Apply(o)); string(b) != tt.want {
			t.Errorf("%s: %s, want %s", name, b, tt.want)
		}
	}
	if after, _ := json.Marshal(o); string(after) != string(before) {
		t.Errorf("a projection changed the resource: %s", after)
	}
	if _, err := document.NewProjection(make([]string, 101), nil); err == nil {
		t.Error("101 names are accepted")
	}
}

// TestDescriptions checks that the documents about this service name only what exists.
func TestDescriptions(t *testing.T) {
	known := map[any]bool{}
	for _, s := range document.Schemas("https://x") {
		known[s["id"]] = true
		if len(s["attributes"].([]any)) == 0 {
			t.Errorf("%v has no attributes", s["id"])
		}
	}
	for _, r := range document.ResourceTypes("https://x") {
		if !known[r["schema"]] {
			t.Errorf("%v has an unknown schema", r["id"])
		}
	}
	b, err := json.Marshal(document.Config("https://x"))
	if err != nil || !strings.Contains(string(b), `"bulk":{"maxOperations":0,"maxPayloadSize":0,"supported":false}`) {
		t.Errorf("%s, %v", b, err)
	}
}
