package plan_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/orgfile/format"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/orgfile/model"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/orgfile/plan"
)

const head = "apiVersion: holdfast.dev/organization/v1\ngroup: acme\n"

func parse(t *testing.T, text string) *model.Model {
	t.Helper()
	m, err := format.Parse(format.File{Name: "f.yaml", Text: []byte(text)})
	if err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	return m
}

// stored returns a model as if the server had it.
func stored(t *testing.T, text string) *model.Model {
	m := parse(t, text)
	m.GroupUID = "u"
	for _, k := range model.Kinds {
		for i, r := range m.Sorted(k) {
			r.UID = fmt.Sprintf("u/%s%d", k.Name, i)
		}
	}
	if m.Find(model.Folders, model.Root) == nil {
		root := &model.Resource{Kind: model.KindOf(model.Folders), Name: model.Root, UID: "u"}
		m.Resources[model.Folders][model.Root] = root
	}
	return m
}

func write(t *testing.T, m *model.Model) string {
	t.Helper()
	var out bytes.Buffer
	if err := format.Write(&out, m, nil); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// apply makes the changes of a plan in a model, each one as the server would: a parent must
// exist before what is in it, and a name must be free.
func apply(t *testing.T, m *model.Model, changes []*plan.Change) {
	t.Helper()
	for _, c := range changes {
		all := m.Resources[c.Kind.Name]
		if c.Action == plan.Delete || c.Action == plan.Replace {
			if c.Kind.Name == model.Folders {
				for _, r := range all {
					if r.In == c.Current.Path() {
						t.Fatalf("%s is deleted before %s", c.Label(), r.Path())
					}
				}
			}
			delete(all, c.Current.Key())
		}
		if c.Action == plan.Create || c.Action == plan.Replace {
			parent := c.Kind.Parent
			if parent == "" {
				parent = model.Folders
			}
			if in := c.Wanted.In; in != "" && m.Find(parent, in) == nil {
				t.Fatalf("%s is created before %s", c.Label(), in)
			}
			if all[c.Wanted.Key()] != nil {
				t.Fatalf("%s exists already", c.Label())
			}
			copied := *c.Wanted
			all[c.Wanted.Key()] = &copied
		}
		if c.Action == plan.Update {
			for _, f := range c.Fields {
				if f.New == nil {
					delete(c.Current.Fields, f.Name)
					continue
				}
				c.Current.Fields[f.Name] = f.New
			}
		}
	}
}

// random returns a random organization. Few names make collisions and renames likely.
func random(r *rand.Rand) string {
	folders := []string{""}
	var b strings.Builder
	b.WriteString(head + "folders:\n  - path: .\n")
	for range r.IntN(8) {
		path := strings.TrimPrefix(folders[r.IntN(len(folders))]+"/"+string(rune('a'+r.IntN(4))), "/")
		if !slices.Contains(folders, path) {
			folders = append(folders, path)
			fmt.Fprintf(&b, "  - path: %s\n    description: %q\n", path, []string{"", "x", "y"}[r.IntN(3)])
		}
	}
	section := func(name, line string, lines ...string) (paths []string) {
		b.WriteString(name + ":\n")
		for range 1 + r.IntN(5) {
			path := strings.TrimPrefix(folders[r.IntN(len(folders))]+"/"+string(rune('p'+r.IntN(4))), "/")
			if slices.Contains(paths, path) {
				continue
			}
			paths = append(paths, path)
			fmt.Fprintf(&b, "  - path: %s\n    %s%s\n", path, line, lines[r.IntN(len(lines))])
		}
		return paths
	}
	roles := section("roles", "capabilities: ", "[groups.list]", "[repo.list]", "[groups.list, repo.list]")
	const match = "claimMatch: {issuer: https://a.example, subject: "
	workloads := section("workloads", match, "a}", "b}", "c, claims: {x: y}}")
	section("signers", "issuer: ", "a", "b")
	repos := section("repos", "description: ", "a", "b")
	b.WriteString("bindings:\n")
	for range 1 + r.IntN(6) {
		in := folders[r.IntN(len(folders))]
		if in == "" {
			in = "."
		}
		fmt.Fprintf(&b, "  - in: %s\n    identity: %s\n    role: %s\n",
			in, workloads[r.IntN(len(workloads))], roles[r.IntN(len(roles))])
		if r.IntN(3) == 0 {
			fmt.Fprintf(&b, "    expireTime: 203%d-01-01\n", r.IntN(9))
		}
	}
	b.WriteString("exceptions:\n")
	for range 1 + r.IntN(3) {
		fmt.Fprintf(&b, "  - target: repo:%s\n    advisoryId: CVE-%d\n    reason: r%d\n",
			repos[r.IntN(len(repos))], r.IntN(2), r.IntN(2))
	}
	return b.String()
}

// TestRandom: applying the plan between two random organizations to the first one gives the
// second one, and then there is nothing left to change.
func TestRandom(t *testing.T) {
	for seed := range uint64(400) {
		r := rand.New(rand.NewPCG(seed, 38))
		before, after := random(r), random(r)
		current := stored(t, before)
		p, err := plan.Diff(current, parse(t, after), plan.Options{Prune: true})
		if err != nil {
			t.Fatalf("seed %d: %v\n%s\n%s", seed, err, before, after)
		}
		apply(t, current, p.Changes)
		if diff := cmp.Diff(write(t, parse(t, after)), write(t, current)); diff != "" {
			t.Fatalf("seed %d (-want +got):\n%s", seed, diff)
		}
		p, err = plan.Diff(stored(t, after), parse(t, write(t, current)), plan.Options{Prune: true})
		if err != nil || len(p.Changes) != 0 {
			t.Fatalf("seed %d: %v, %d changes after the plan was applied", seed, err, len(p.Changes))
		}
	}
}

// TestRename: a renamed folder keeps its contents and the references to them.
func TestRename(t *testing.T) {
	current := stored(t, head+`folders:
  - path: a
  - path: a/x
roles:
  - path: a/x/r
    capabilities: [repo.list]
bindings:
  - in: a/x
    identity: ann@example.com
    role: a/x/r
`)
	p, err := plan.Diff(current, parse(t, head+`folders:
  - path: b
    was: a
  - path: b/y
    was: a/x
    description: new
roles:
  - path: b/y/r
    capabilities: [repo.list]
bindings:
  - in: b/y
    identity: ann@example.com
    role: b/y/r
`), plan.Options{Prune: true})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, c := range p.Changes {
		got = append(got, fmt.Sprint(c.Action, " ", c.Kind.Name, " ", c.Label(), " ", c.Was))
	}
	want := []string{"rename folders b a", "rename folders b/y a/x", "update folders b/y "}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestRefused tests that a file that contradicts itself or the organization is refused, with the line.
func TestRefused(t *testing.T) {
	const before = head + "folders:\n  - path: a\n  - path: a/x\n  - path: c\n" +
		"roles:\n  - path: r\n    capabilities: [repo.list]\n"
	tests := map[string]struct{ text, want string }{
		"a move": {"folders:\n  - path: c/x\n    was: a/x\n",
			"f.yaml:4: a folder cannot move from a/x to another folder"},
		"both names":        {"folders:\n  - path: c\n    was: a\n", "f.yaml:4: both a and c exist"},
		"the old name, too": {"folders:\n  - path: a\n  - path: b\n    was: a\n", "f.yaml:5: the file still has a"},
		"a folder that is nowhere": {"roles:\n  - path: z/r\n    capabilities: [repo.list]\n",
			"f.yaml:4: there is no folder z"},
		"a role that is nowhere": {"bindings:\n  - identity: ann@example.com\n    role: none\n",
			"f.yaml:4: role: there is no role none"},
		"a role that is deleted": {"roles: []\nbindings:\n  - identity: ann@example.com\n    role: r\n",
			"f.yaml:5: role: there is no role r"},
		"a workload that is nowhere": {"bindings:\n  - identity: x\n    role: r\n",
			"f.yaml:4: identity: there is no workload x"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			current := stored(t, before)
			current.Managed = append(current.Managed, "bindings")
			_, err := plan.Diff(current, parse(t, head+tt.text), plan.Options{Prune: true})
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error = %v, want %s", err, tt.want)
			}
		})
	}
}

// TestUnnamed: without Prune, nothing is deleted, and the plan says how much it leaves alone.
// A kind that the state does not have is not compared.
func TestUnnamed(t *testing.T) {
	current := stored(t, head+"folders:\n  - path: a\nroles:\n  - path: r\n    capabilities: [repo.list]\n")
	p, err := plan.Diff(current, parse(t, head+"folders: []\nroles: []\nrepos:\n  - path: x\n"), plan.Options{})
	if err != nil || len(p.Changes) != 0 {
		t.Fatalf("%v, %d changes", err, len(p.Changes))
	}
	if diff := cmp.Diff(map[string]int{"folders": 1, "roles": 1}, p.Unnamed); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if len(p.Unread) != 1 || p.Unread[0].Name != model.Repos {
		t.Errorf("unread = %v", p.Unread)
	}
}

// TestRequests: requests have UIDs and references to changes, masks name only what changes,
// and a secret is sent only for a new resource or if that is asked for.
func TestRequests(t *testing.T) {
	current := stored(t, head+"upstreams:\n  - path: old\n    address: https://a.example\nroles: []\n")
	wanted := head + `folders:
  - path: team
roles:
  - path: team/r
    capabilities: [repo.list]
bindings:
  - in: team
    identity: ann@example.com
    role: team/r
upstreams:
  - path: old
    address: https://b.example
    credentials: env:OLD
  - path: team/new
    credentials: env:NEW
`
	current.Managed = append(current.Managed, "folders", "bindings")
	p, err := plan.Diff(current, parse(t, wanted), plan.Options{})
	if err != nil {
		t.Fatal(err)
	}
	maker := plan.Maker{
		Outside: map[string]map[string]string{model.Identities: {"ann@example.com": "person"}},
		Secret:  func(ref string) (string, error) { return "value of " + ref, nil },
	}
	requests, err := maker.Requests(p)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, r := range requests {
		got = append(got, fmt.Sprintf("%s %s %s %s", r.ID, r.Source, r.Method.Name(),
			strings.ReplaceAll(fmt.Sprint(r.Message), "  ", " ")))
	}
	want := []string{
		`c1 f.yaml:4 CreateGroup parent:"u" group:{name:"team"}`,
		`c2 f.yaml:6 CreateRole parent:"change:c1" role:{name:"r" capabilities:CAP_REPO_LIST}`,
		`c3 f.yaml:9 CreateRoleBinding parent:"change:c1" role_binding:{identity_uid:"person" role_uid:"change:c2"}`,
		`c4 f.yaml:16 CreateUpstream parent:"change:c1" upstream:{name:"new" credentials:"value of env:NEW"}`,
		`c5 f.yaml:13 UpdateUpstream upstream:{uid:"u/upstreams0" address:"https://b.example"} update_mask:{paths:"address"}`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
