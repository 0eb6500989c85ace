package iam_test

import "github.com/holdfast-dev/holdfast/internal/core/resource"

// A cast is an organization with a folder and two workloads.
type cast struct {
	prod         resource.Group
	ann, ben     resource.UID
	reader, all  resource.Role // reader: groups.list; all: groups.list and repo.list
	annProd      resource.UID  // ann is a reader of prod
	benAcme, own resource.UID  // bindings of ben: all on acme, and reader on prod
}

func (w *world) cast() (c cast) {
	w.t.Helper()
	c.prod = w.group(w.acme.UID, "prod")
	identity := func(name string) resource.UID {
		i, err := w.CreateIdentity(w.owner, w.acme.UID, person(name, name))
		must(w.t, err)
		return i.UID
	}
	role := func(name string, caps ...string) resource.Role {
		r, err := w.CreateRole(w.owner, w.acme.UID, resource.Role{Name: name, Capabilities: resource.CapabilitySet(caps...)})
		must(w.t, err)
		return r
	}
	bind := func(group, identity, role resource.UID) resource.UID {
		b, err := w.CreateBinding(w.owner, group, resource.RoleBinding{Identity: identity, Role: role})
		must(w.t, err)
		return b.UID
	}
	c.ann, c.ben = identity("ann"), identity("ben")
	c.reader, c.all = role("reader", "groups.list"), role("all", "groups.list", "repo.list")
	c.annProd = bind(c.prod.UID, c.ann, c.reader.UID)
	c.benAcme, c.own = bind(w.acme.UID, c.ben, c.all.UID), bind(c.prod.UID, c.ben, c.reader.UID)
	return c
}
