package workload

import (
	"bytes"
	"encoding/json"
	"regexp"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestPlatformsAreValid: platforms.json has no unknown keys, and every template and list in it names fields of its
// platform.
func TestPlatformsAreValid(t *testing.T) {
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	var platforms []Platform
	if err := d.Decode(&platforms); err != nil {
		t.Fatal(err)
	}
	ids := map[string]bool{}
	for _, p := range platforms {
		t.Run(p.ID, func(t *testing.T) {
			if p.ID == "" || p.Title == "" || p.Name == "" || ids[p.ID] || len(p.Subjects) == 0 {
				t.Errorf("id, title, name or subjects are missing, or the id is not unique: %+v", p)
			}
			ids[p.ID] = true
			fields := map[string]bool{"": true}
			for _, f := range p.Fields {
				checkField(t, f, fields[f.Name])
				fields[f.Name] = true
			}
			for _, name := range slices.Concat(p.ExactlyOne, p.AtLeastOne, p.NotBoth) {
				if !fields[name] {
					t.Errorf("there is no field %s", name)
				}
			}
			for claim, name := range p.Claims {
				if !fields[name] {
					t.Errorf("claim %s: there is no field %s", claim, name)
				}
			}
			checkTemplates(t, p, fields)
		})
	}
}

func checkField(t *testing.T, f Field, known bool) {
	t.Helper()
	if known {
		t.Errorf("field %q has no name or a name that another field has", f.Name)
	}
	if f.Help == "" && f.Label == "" {
		t.Errorf("neither the command nor the console has the field %s", f.Name)
	}
	if (f.Label != "" || f.Required) && f.Example == "" {
		t.Errorf("field %s has no example", f.Name)
	}
	re, err := regexp.Compile(f.Pattern)
	if err != nil {
		t.Errorf("field %s: %v", f.Name, err)
		return
	}
	for _, value := range []string{f.Example, f.Default} {
		if value != "" && !re.MatchString(value) {
			t.Errorf("field %s: %q does not match the pattern", f.Name, value)
		}
	}
}

func checkTemplates(t *testing.T, p Platform, fields map[string]bool) {
	t.Helper()
	templates := []string{p.Name}
	for _, c := range p.Context {
		templates = append(templates, c.Text)
		if !fields[c.If] {
			t.Errorf("context: there is no field %s", c.If)
		}
	}
	for i, s := range p.Subjects {
		templates = append(templates, s.Exact, s.Pattern)
		if !fields[s.If] || (s.Exact == "") == (s.Pattern == "") || (s.If == "") != (i == len(p.Subjects)-1) {
			t.Errorf("subject %d is not valid: %+v", i, s)
		}
	}
	for _, template := range templates {
		for _, m := range placeholder.FindAllStringSubmatch(template, -1) {
			if !fields[m[1]] && (m[1] != "context" || p.Context == nil) {
				t.Errorf("%s: there is no field %s", template, m[1])
			}
		}
	}
}

func TestRule(t *testing.T) {
	tests := map[string]struct {
		platform string
		job      Job
		want     Rule
	}{
		"an exact subject": {
			"kubernetes", Job{"namespace": "shop", "service-account": "web"},
			Rule{Name: "kubernetes-shop-web", Subject: "system:serviceaccount:shop:web"},
		},
		"a pattern, with quoted values": {
			"github", Job{"repo": "acme/we.b", "branch": "a.b"},
			Rule{
				Name:    "github-acme/we.b",
				Pattern: `repo:acme(@[0-9]+)?/we\.b(@[0-9]+)?:ref:refs/heads/a\.b`,
			},
		},
		"numbers, and a colon that GitHub escapes": {
			"github", Job{"repo": "acme/web", "environment": "eu:prod", "owner-id": "1", "repo-id": "2"},
			Rule{
				Name: "github-acme/web", Pattern: `repo:acme(@1)?/web(@2)?:environment:eu%3Aprod`,
				Claims: map[string]string{"repository_owner_id": "1", "repository_id": "2"},
			},
		},
		"the first template that applies": {
			"gitlab", Job{"project": "acme/web", "tag": "v1"},
			Rule{Name: "gitlab-acme/web", Subject: "project_path:acme/web:ref_type:tag:ref:v1"},
		},
		"the last template": {
			"gitlab", Job{"project": "acme/web", "protected": "true"},
			Rule{
				Name: "gitlab-acme/web", Pattern: "project_path:acme/web:ref_type:(branch|tag):ref:.+",
				Claims: map[string]string{"ref_protected": "true"},
			},
		},
		"a default that is not quoted": {
			"buildkite", Job{"org": "acme", "pipeline": "web", "tag": "v1"},
			Rule{
				Name:    "buildkite-acme-web",
				Pattern: "organization:acme:pipeline:web:ref:refs/tags/v1:commit:[^:]+:step:.*",
			},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			i := slices.IndexFunc(Platforms(), func(p Platform) bool { return p.ID == tt.platform })
			got := Platforms()[i].Rule(tt.job)
			if tt.want.Claims == nil {
				tt.want.Claims = map[string]string{}
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
