package format_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/orgfile/format"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/orgfile/model"
)

var update = flag.Bool("update", false, "rewrite the files of the documentation")

const head = "apiVersion: holdfast.dev/organization/v1\ngroup: acme\n"

// TestRefused: what a file must not have is refused, and the error names the file and the
// line.
func TestRefused(t *testing.T) {
	tests := map[string]struct{ text, want string }{
		"nothing":         {"", "f.yaml:1: the file is empty"},
		"another version": {"apiVersion: v2\ngroup: acme\n", "f.yaml:1: the apiVersion is not"},
		"no group":        {"apiVersion: holdfast.dev/organization/v1\n", "group is missing"},
		"not YAML":        {head + "roles: [\n", "this is not YAML"},
		"a list":          {"- a\n", "f.yaml:1: a file is a mapping"},
		"two documents":   {head + "---\n" + head, "f.yaml:3: a file contains one document"},
		"an alias":        {head + "roles: &a []\nrepos: *a\n", "f.yaml:4: aliases are not allowed"},
		"an anchor":       {head + "roles: &a []\n", "f.yaml:3: anchors are not allowed"},
		"a merge key":     {head + "roles:\n  - <<: {path: a}\n", "f.yaml:4: merge keys are not allowed"},
		"a tag":           {head + "roles: !!binary aGk=\n", "f.yaml:3: tags are not allowed"},
		"a key twice": {head + "roles: []\nroles: []\n",
			`f.yaml:4: the key "roles" is here twice; the first is in line 3`},
		"a field twice":    {head + "roles:\n  - path: a\n    path: b\n", `f.yaml:5: the key "path" is here twice`},
		"a resource twice": {head + "roles:\n  - path: a\n  - path: a\n", "f.yaml:5: the role a is already in f.yaml:4"},
		"an unknown kind": {head + "role: []\n",
			`f.yaml:3: "role" is not a kind that files can contain; did you mean roles?`},
		"an unknown field": {head + "roles:\n  - path: a\n    capabilites: []\n",
			"f.yaml:5: \"capabilites\" is not a field of a role; did you mean capabilities?"},
		"an unknown word":   {head + "roles:\n  - path: a\n    capabilities: [groups.lst]\n", "f.yaml:5: capabilities: "},
		"no value":          {head + "roles:\n", "f.yaml:3: roles is a list: write [] for none"},
		"no path":           {head + "roles:\n  - description: a\n", "f.yaml:4: the role has no path"},
		"a path upwards":    {head + "roles:\n  - path: ../a\n", `f.yaml:4: "../a" is not a path`},
		"an absolute path":  {head + "roles:\n  - path: /a\n", `f.yaml:4: "/a" is not a path`},
		"a bool for a text": {head + "roles:\n  - path: a\n    description: true\n", "f.yaml:5: a text is expected here"},
		"a text for a bool": {head + "upstreams:\n  - path: a\n    anyone: maybe\n", "f.yaml:5: anyone is true or false"},
		"a large number": {head + "accessRules:\n  - role: /viewer\n    approvers: 99999999999\n",
			"f.yaml:5: approvers: 99999999999 is too large"},
		"a secret": {head + "upstreams:\n  - path: a\n    credentials: hush\n",
			"a secret is written as env:NAME or file:PATH"},
		"a kind not managed": {head + "manage: [repos]\nroles: []\n",
			"f.yaml:4: the file has roles, but its manage does not"},
		"an unknown manage": {head + "manage: [invites]\n", `f.yaml:3: "invites" is not a kind`},
		"a time that is none": {head + "bindings:\n  - identity: a@b.c\n    role: /viewer\n    startTime: soon\n",
			"f.yaml:6: startTime: "},
		"deep nesting": {head + "roles: " + strings.Repeat("[", 30) + strings.Repeat("]", 30),
			"f.yaml:3: values are nested too deeply"},
		"very deep nesting": {head + "roles: " + strings.Repeat("[", 200_000), "f.yaml:3: "},
		"many values": {head + "roles: [" + strings.Repeat("a,", 4_000_000) + "]",
			"f.yaml:3: the file has too many values"},
		"100 MB": {head + "roles: # " + strings.Repeat("a", 100<<20),
			"f.yaml:1: the file is larger than 32 MiB"},
		"an alias bomb": {head + "a: &a [x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a]\nc: [*b,*b,*b,*b]\n",
			"f.yaml:3: anchors are not allowed"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := format.Parse(format.File{Name: "f.yaml", Text: []byte(tt.text)})
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Fatalf("error = %v, want %s", err, tt.want)
			}
			if strings.Contains(err.Error(), "hush") {
				t.Errorf("the error contains a secret: %v", err)
			}
		})
	}
}

const whole = head + `folders:
  - path: .
    displayName: Acme
  - path: platform
  - path: platform/ci
    description: "a: b # c"
roles:
  - path: deployer
    capabilities:
      - groups.list
      - repo.list
workloads:
  - path: platform/ci/build
    claimMatch:
      issuer: https://token.actions.githubusercontent.com
      subject: repo:acme/web:ref:refs/heads/main
      claims:
        environment: prod
identityProviders: []
bindings:
  - identity: ann@example.com
    role: /owner
  - in: platform
    identity: platform/ci/build
    role: deployer
    startTime: "2030-01-01T00:00:00Z"
    reason: |-
      two
      lines
`

// TestWrite: writing what was parsed gives the same text, and so does formatting it.
func TestWrite(t *testing.T) {
	m, err := format.Parse(format.File{Name: "f.yaml", Text: []byte(whole)})
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := format.Write(&out, m, nil); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(whole, out.String()); diff != "" {
		t.Errorf("Write (-want +got):\n%s", diff)
	}
	text, err := format.Format(format.File{Name: "f.yaml", Text: []byte(whole)})
	if err != nil || string(text) != whole {
		t.Errorf("Format: %v\n%s", err, cmp.Diff(whole, string(text)))
	}
}

// TestFormat tests that a comment stays with its resource or field.
func TestFormat(t *testing.T) {
	const before = "# who may deploy\n" + head + `roles:
    # the second
    - capabilities: [repo.list] # only one
      path: b
    # the first
    - path: a
folders:
- {path: x}
`
	const after = "# who may deploy\n" + head + `folders:
  - {path: x}
roles:
  # the first
  - path: a
  # the second
  - path: b
    capabilities: [repo.list] # only one
`
	text, err := format.Format(format.File{Name: "f.yaml", Text: []byte(before)})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(after, string(text)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestSplit: the files of a folder together are the organization.
func TestSplit(t *testing.T) {
	m, err := format.Parse(format.File{Name: "f.yaml", Text: []byte(whole)})
	if err != nil {
		t.Fatal(err)
	}
	var files []format.File
	for name, part := range format.Split(m) {
		var out bytes.Buffer
		if err := format.Write(&out, part, nil); err != nil {
			t.Fatal(err)
		}
		files = append(files, format.File{Name: name, Text: out.Bytes()})
	}
	if len(files) != 2 {
		t.Errorf("%d files, want 2", len(files))
	}
	joined, err := format.Parse(files...)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := format.Write(&out, joined, nil); err != nil || out.String() != whole {
		t.Errorf("%v\n%s", err, cmp.Diff(whole, out.String()))
	}
	other := format.File{Name: "g.yaml", Text: []byte(strings.Replace(head, "acme", "other", 1))}
	_, err = format.Parse(append(files, other)...)
	if err == nil || !strings.Contains(err.Error(), "g.yaml:2: the file is about other") {
		t.Errorf("files about two groups: %v", err)
	}
}

// TestSchema: docs has the current schema, and it has every kind.
func TestSchema(t *testing.T) {
	const file = "../../../../../docs/organization.schema.json"
	got, err := format.JSONSchema()
	if err != nil {
		t.Fatal(err)
	}
	got = append(got, '\n')
	if *update {
		if err := os.WriteFile(file, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("%s is not current (%v): go test ./cmd/holdfast/internal/orgfile/format -run TestSchema -update", file, err)
	}
	var s format.Schema
	if err := json.Unmarshal(got, &s); err != nil {
		t.Fatal(err)
	}
	for _, k := range model.Kinds {
		if s.Properties[k.Name] == nil {
			t.Errorf("the schema lacks %s", k.Name)
		}
	}
}

// FuzzParse: no file crashes the parser. A file that is accepted is written in a form that
// has the same meaning, and that formatting does not change a second time.
func FuzzParse(f *testing.F) {
	f.Add([]byte(whole))
	f.Add([]byte(head + "pullRules:\n  - target: repo:a\n    minSeverity: high\n    exempt: [a@b.c, x/y]\n"))
	f.Add([]byte(head + "signers:\n  - path: a\n    key: |\n      x\n       y\n"))
	f.Add([]byte("{apiVersion: holdfast.dev/organization/v1, group: a, roles: [{path: 'b c', description: \"\\u0085\"}]}"))
	f.Fuzz(func(t *testing.T, text []byte) {
		m, err := format.Parse(format.File{Name: "f", Text: text})
		if err != nil {
			var one *format.Error
			var all format.Mistakes
			if !errors.As(err, &one) && !errors.As(err, &all) {
				t.Fatalf("%T is not a mistake: %v", err, err)
			}
			return
		}
		var first, second bytes.Buffer
		if err := format.Write(&first, m, []string{"a\nb"}); err != nil {
			t.Fatal(err)
		}
		again, err := format.Parse(format.File{Name: "f", Text: first.Bytes()})
		if err != nil {
			t.Fatalf("%v in\n%s", err, first.Bytes())
		}
		if err := format.Write(&second, again, []string{"a\nb"}); err != nil || first.String() != second.String() {
			t.Fatalf("%v\n%s", err, cmp.Diff(first.String(), second.String()))
		}
	})
}
