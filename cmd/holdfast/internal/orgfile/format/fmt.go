package format

import (
	"bytes"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/orgfile/model"
)

// Format returns a file in the order and style of exports. Comments stay at
// their resources and fields. It returns the error of Parse if the file is not valid.
func Format(f File) ([]byte, error) {
	d, err := parse(f)
	if err != nil {
		return nil, err
	}
	resources := make(map[*yaml.Node]*model.Resource, len(d.entries))
	for _, e := range d.entries {
		resources[e.node] = e.resource
		order(e.node, fieldNames(e.resource.Kind, ""))
		for i := 1; i < len(e.node.Content); i += 2 {
			if child := e.node.Content[i]; child.Kind == yaml.MappingNode {
				order(child, fieldNames(e.resource.Kind, e.node.Content[i-1].Value+"."))
			}
		}
	}
	for i := 1; i < len(d.root.Content); i += 2 {
		if model.KindOf(d.root.Content[i-1].Value) == nil {
			continue
		}
		slices.SortStableFunc(d.root.Content[i].Content, func(x, y *yaml.Node) int {
			return model.Compare(resources[x], resources[y])
		})
	}
	order(d.root, append([]string{"apiVersion", "group", "manage"}, names()...))
	var out bytes.Buffer
	encoder := yaml.NewEncoder(&out)
	encoder.SetIndent(2)
	if err := encoder.Encode(d.root); err != nil {
		return nil, err
	}
	if err := encoder.Close(); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// order sorts the pairs of a mapping by the place of their keys in a list. Other keys come
// last, by name. The comment at the end of the last pair stays with it.
func order(n *yaml.Node, keys []string) {
	pairs := slices.Collect(slices.Chunk(n.Content, 2))
	place := func(key string) int {
		if i := slices.Index(keys, key); i >= 0 {
			return i
		}
		return len(keys)
	}
	slices.SortStableFunc(pairs, func(x, y []*yaml.Node) int {
		if a, b := place(x[0].Value), place(y[0].Value); a != b {
			return a - b
		}
		return strings.Compare(x[0].Value, y[0].Value)
	})
	n.Content = slices.Concat(pairs...)
}
