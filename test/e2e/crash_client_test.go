package e2e_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"testing"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
)

// crashKinds are the kinds of resources that the clients change, by their names in the API.
var crashKinds = []string{"groups", "identities", "roleBindings"}

const crashGone = "(gone)" // content of a deleted resource

// A crashThing is the state of a resource according to its only writer.
type crashThing struct {
	kind    string
	key     string       // key that the client chose: the name, or the identity of a binding
	uid     resource.UID // empty until the server has returned it
	content string       // content that updates change: the description, or the role of a binding
	bound   bool         // whether the identity was given a binding
}

func (th *crashThing) path() string { return "/iam/v2beta1/" + th.kind + "/" + string(th.uid) }

// A crashRow is a resource as the server returns it.
type crashRow struct {
	UID         resource.UID               `json:"uid"`
	Name        string                     `json:"name"`
	Description string                     `json:"description"`
	Identity    struct{ UID resource.UID } `json:"identity"`
	Role        struct{ UID resource.UID } `json:"role"`
}

func (r crashRow) key() string {
	if r.Identity.UID != "" {
		return string(r.Identity.UID)
	}
	return r.Name
}

func (r crashRow) content() string {
	if r.Identity.UID != "" {
		return string(r.Role.UID)
	}
	return r.Description
}

// A crashChange is one request and its effect on resources. The effect happens completely or not at all.
type crashChange struct {
	method, path string
	body         any
	things       []*crashThing
	becomes      string
}

// A crashClient changes only its own resources, one after the other, and records the acknowledged changes. All
// clients work in the same organization.
type crashClient struct {
	id      int
	org     resource.UID
	serial  int
	things  []*crashThing // existing resources
	touched []*crashThing // resources changed since the last check
	doubt   *crashChange  // the change for which there was no answer, or nil

	acknowledged, doubtful, happened int
}

// run makes changes until the server is gone. It sends a value for each acknowledged change.
func (k *crashClient) run(t *testing.T, api *procClient, acknowledged chan<- struct{}) {
	for {
		c := k.choose()
		a, err := api.call(t.Context(), c.method, c.path, c.body)
		if err != nil {
			k.doubt = c
			k.doubtful++
			return
		}
		if a.status != http.StatusOK {
			t.Errorf("%s %s: %d %s", c.method, c.path, a.status, a.body)
			return
		}
		if c.method == http.MethodPost {
			if err := c.learn(a.body); err != nil {
				t.Errorf("%s %s: %v in %s", c.method, c.path, err, a.body)
				return
			}
		}
		k.apply(c)
		k.acknowledged++
		acknowledged <- struct{}{}
	}
}

// learn reads the UIDs of the created resources from the answer.
func (c *crashChange) learn(answer []byte) error {
	var out struct {
		crashRow
		RoleBindings []crashRow `json:"roleBindings"`
	}
	if err := json.Unmarshal(answer, &out); err != nil {
		return err
	}
	rows := out.RoleBindings
	if rows == nil {
		rows = []crashRow{out.crashRow}
	}
	if len(rows) != len(c.things) {
		return fmt.Errorf("%d resources, want %d", len(rows), len(c.things))
	}
	for i, row := range rows {
		c.things[i].uid = row.UID
		if row.key() != c.things[i].key || row.content() != c.becomes {
			return fmt.Errorf("created %q %q, want %q %q", row.key(), row.content(), c.things[i].key, c.becomes)
		}
	}
	return nil
}

// apply records in the client's state that a change has happened.
func (k *crashClient) apply(c *crashChange) {
	for _, th := range c.things {
		if th.content == crashGone {
			k.things = append(k.things, th)
		}
		th.content = c.becomes
		k.touched = append(k.touched, th)
	}
	if c.becomes == crashGone {
		k.things = slices.DeleteFunc(k.things, func(th *crashThing) bool { return th.content == crashGone })
	}
}

// settle finds out whether the change without an answer has happened. fresh contains the most recently created
// resources, by kind and key.
func (k *crashClient) settle(t *testing.T, api *procClient, fresh map[string]crashRow) {
	t.Helper()
	c := k.doubt
	if c == nil {
		return
	}
	k.doubt = nil
	done := 0
	for _, th := range c.things {
		row, found := fresh[th.kind+" "+th.key]
		got := crashGone
		switch {
		case th.uid != "":
			got = crashGet(t, api, th)
		case found:
			th.uid, got = row.UID, row.content()
		}
		switch got {
		case c.becomes:
			done++
		case th.content:
		default:
			t.Fatalf("%s %s is %q, want %q or %q", th.kind, th.key, got, th.content, c.becomes)
		}
	}
	switch done {
	case 0:
	case len(c.things):
		k.apply(c)
		k.happened++
	default:
		t.Fatalf("%s %s changed %d of %d resources", c.method, c.path, done, len(c.things))
	}
}

// choose returns the next change to make.
func (k *crashClient) choose() *crashChange {
	k.serial++
	n := rand.IntN(100)
	if n < 35 {
		return k.create("groups", map[string]any{})
	}
	if n < 60 {
		return k.create("identities", map[string]any{
			"claimMatch": map[string]string{"issuer": "https://issuer.test", "subject": "s"},
		})
	}
	var c *crashChange
	switch {
	case n < 75:
		c = k.bind()
	case n < 87:
		c = k.update()
	default:
		c = k.remove()
	}
	if c == nil {
		return k.create("groups", map[string]any{})
	}
	return c
}

func (k *crashClient) create(kind string, body map[string]any) *crashChange {
	parent := k.org
	g := k.pick(func(th *crashThing) bool { return th.kind == "groups" && th.uid.Depth() < 4 })
	if g != nil && rand.IntN(2) == 0 {
		parent = g.uid
	}
	th := &crashThing{kind: kind, key: fmt.Sprintf("c%d-%d", k.id, k.serial), content: crashGone}
	body["name"], body["description"] = th.key, fmt.Sprint("made ", k.serial)
	return &crashChange{
		http.MethodPost, "/iam/v2beta1/" + kind + "/" + string(parent),
		body, []*crashThing{th}, fmt.Sprint("made ", k.serial),
	}
}

// bind returns a change that gives one or two identities the role viewer, in one request.
func (k *crashClient) bind() *crashChange {
	var ids []resource.UID
	for range 1 + rand.IntN(2) {
		if i := k.pick(func(th *crashThing) bool { return th.kind == "identities" && !th.bound }); i != nil {
			i.bound = true // set even if the request fails, so that no identity is bound twice
			ids = append(ids, i.uid)
		}
	}
	if ids == nil {
		return nil
	}
	viewer := string(resource.ManagedRoleUID("viewer"))
	c := &crashChange{http.MethodPost, "/iam/v2beta1/roleBindings/" + string(k.org), nil, nil, viewer}
	var requests []map[string]any
	for _, id := range ids {
		binding := map[string]any{"identityUid": id, "roleUid": viewer}
		c.things = append(c.things, &crashThing{kind: "roleBindings", key: string(id), content: crashGone})
		requests = append(requests, map[string]any{"parent": k.org, "roleBinding": binding})
		c.body = binding
	}
	if len(ids) > 1 {
		c.path, c.body = "/iam/v2beta1/roleBindings:batchCreate", map[string]any{"parent": k.org, "requests": requests}
	}
	return c
}

func (k *crashClient) update() *crashChange {
	th := k.pick(func(*crashThing) bool { return true })
	if th == nil {
		return nil
	}
	if th.kind != "roleBindings" {
		text := fmt.Sprint("changed ", k.serial)
		return &crashChange{http.MethodPatch, th.path(), map[string]any{"description": text}, []*crashThing{th}, text}
	}
	role := string(resource.ManagedRoleUID("viewer"))
	if th.content == role {
		role = string(resource.ManagedRoleUID("registry.pull"))
	}
	return &crashChange{http.MethodPatch, th.path(), map[string]any{"roleUid": role}, []*crashThing{th}, role}
}

// remove returns a change that deletes a resource without children. The deletion of an identity deletes its bindings,
// too.
func (k *crashClient) remove() *crashChange {
	th := k.pick(func(th *crashThing) bool {
		return th.kind != "groups" ||
			!slices.ContainsFunc(k.things, func(in *crashThing) bool { return in.uid.Parent() == th.uid })
	})
	if th == nil {
		return nil
	}
	c := &crashChange{http.MethodDelete, th.path(), nil, []*crashThing{th}, crashGone}
	for _, b := range k.things {
		if th.kind == "identities" && b.kind == "roleBindings" && b.key == string(th.uid) {
			c.things = append(c.things, b)
		}
	}
	return c
}

// pick returns a random resource for which suits returns true. It returns nil if it finds none in eight attempts.
func (k *crashClient) pick(suits func(*crashThing) bool) *crashThing {
	for range 8 {
		if len(k.things) == 0 {
			return nil
		}
		if th := k.things[rand.IntN(len(k.things))]; suits(th) {
			return th
		}
	}
	return nil
}
