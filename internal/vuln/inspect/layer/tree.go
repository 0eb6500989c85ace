package layer

import (
	"maps"
	"slices"
	"strings"
)

// A node is a file with a value, a symbolic link, or a folder above such a file or link.
type node[T any] struct {
	children map[string]*node[T]
	value    T
	has      bool   // whether the node has a value
	link     string // target of a symbolic link
}

// child returns the child with a name, or nil. It accepts a nil node.
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

// make returns the node at a path. It adds missing nodes, and returns their number.
func (n *node[T]) make(p string) (_ *node[T], added int) {
	for p != "" {
		var name string
		name, p, _ = strings.Cut(p, "/")
		next := n.children[name]
		if next == nil {
			if n.children == nil {
				n.children = map[string]*node[T]{}
			}
			next = &node[T]{}
			n.children[strings.Clone(name)] = next // cloned, because a substring would keep the whole path in memory
			added++
		}
		n = next
	}
	return n, added
}

// get returns the value at a path.
func (n *node[T]) get(p string) (value T, ok bool) {
	found := n.at(p)
	if found == nil {
		return value, false
	}
	return found.value, found.has
}

// remove removes the node at a path and all nodes below it.
func (n *node[T]) remove(p string) {
	dir, name := "", p
	if i := strings.LastIndexByte(p, '/'); i >= 0 {
		dir, name = p[:i], p[i+1:]
	}
	if parent := n.at(dir); parent != nil {
		delete(parent.children, name)
	}
}

// empty removes all nodes below the folder at a path.
func (n *node[T]) empty(p string) {
	if folder := n.at(p); folder != nil {
		folder.children = nil
	}
}

// clear removes the value and the link of the node at a path, because a folder replaces it. The children stay.
func (n *node[T]) clear(p string) {
	if found := n.at(p); found != nil {
		var zero T
		found.value, found.has, found.link = zero, false, ""
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

// each calls f for every node with a value. p is the path of n.
func (n *node[T]) each(p string, f func(string, T)) {
	if n.has {
		f(p, n.value)
	}
	for _, name := range slices.Sorted(maps.Keys(n.children)) {
		childPath := name
		if p != "" {
			childPath = p + "/" + name
		}
		n.children[name].each(childPath, f)
	}
}
