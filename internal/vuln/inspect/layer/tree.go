package layer

import (
	"maps"
	"slices"
	"strings"
)

// A node is a file that something is kept of, a symbolic link, or a folder above one.
type node[T any] struct {
	children map[string]*node[T]
	value    T
	has      bool
	link     string // the target, if it is a symbolic link
}

// child returns the node of that name, or nil. It is nil for a nil node, too.
func (n *node[T]) child(name string) *node[T] {
	if n == nil {
		return nil
	}
	return n.children[name]
}

// at returns the node at a path, or nil.
func (n *node[T]) at(p string) *node[T] {
	for n != nil && p != "" {
		var name string
		name, p, _ = strings.Cut(p, "/")
		n = n.child(name)
	}
	return n
}

// make returns the node at a path, and how many it had to add for it.
func (n *node[T]) make(p string) (at *node[T], added int) {
	for p != "" {
		var name string
		name, p, _ = strings.Cut(p, "/")
		next := n.children[name]
		if next == nil {
			if n.children == nil {
				n.children = map[string]*node[T]{}
			}
			next = &node[T]{}
			n.children[strings.Clone(name)] = next // not all of a long path
			added++
		}
		n = next
	}
	return n, added
}

// get returns the value at a path.
func (n *node[T]) get(p string) (value T, ok bool) {
	at := n.at(p)
	if at == nil {
		return value, false
	}
	return at.value, at.has
}

// remove takes away the node at a path and all below it.
func (n *node[T]) remove(p string) {
	dir, name := "", p
	if i := strings.LastIndexByte(p, '/'); i >= 0 {
		dir, name = p[:i], p[i+1:]
	}
	if parent := n.at(dir); parent != nil {
		delete(parent.children, name)
	}
}

// empty takes away all below the folder at a path.
func (n *node[T]) empty(p string) {
	if at := n.at(p); at != nil {
		at.children = nil
	}
}

// clear takes away the file or link at a path, where a folder now is.
func (n *node[T]) clear(p string) {
	if at := n.at(p); at != nil {
		var none T
		at.value, at.has, at.link = none, false, ""
	}
}

// merge adds the nodes of an upper layer.
func (n *node[T]) merge(upper *node[T]) {
	if upper.has || upper.link != "" {
		n.value, n.has, n.link = upper.value, upper.has, upper.link
	}
	for name, child := range upper.children {
		if below := n.children[name]; below != nil {
			below.merge(child)
			continue
		}
		if n.children == nil {
			n.children = map[string]*node[T]{}
		}
		n.children[name] = child
	}
}

func (n *node[T]) each(p string, f func(string, T)) {
	if n.has {
		f(p, n.value)
	}
	for _, name := range slices.Sorted(maps.Keys(n.children)) {
		at := name
		if p != "" {
			at = p + "/" + name
		}
		n.children[name].each(at, f)
	}
}
