// Package patch applies PATCH requests of SCIM (RFC 7644, section 3.5.2) to resources, in the spellings that real
// directories use.
package patch

import (
	"strings"

	"github.com/holdfast-dev/holdfast/internal/signin/scim/document"
	"github.com/holdfast-dev/holdfast/internal/signin/scim/filter"
)

// MaxOperations is the greatest number of operations in one request.
const MaxOperations = 200

// The operations.
const (
	Add     = "add"
	Replace = "replace"
	Remove  = "remove"
)

// An Operation is a change of a resource.
type Operation struct {
	Op    string
	Path  string // "" means the whole resource
	Value any
}

// Parse reads the body of a PATCH request that document.Parse has read. It returns a *document.Error if the body is not
// such a request.
func Parse(body document.Object) ([]Operation, error) {
	_, v, _ := document.Get(body, "Operations")
	list, ok := v.([]any)
	if !ok || len(list) == 0 {
		return nil, document.Bad(document.InvalidSyntax, "The body has no list of Operations.")
	}
	if len(list) > MaxOperations {
		return nil, document.Bad(document.TooMany, "There are more than %d operations.", MaxOperations)
	}
	operations := make([]Operation, len(list))
	for i, v := range list {
		o, ok := v.(document.Object)
		if !ok {
			return nil, document.Bad(document.InvalidSyntax, "Operation %d is not an object.", i+1)
		}
		op := strings.ToLower(document.Text(o, "op"))
		if op != Add && op != Replace && op != Remove {
			return nil, document.Bad(document.InvalidSyntax, "Operation %d must have the op add, replace or remove.", i+1)
		}
		_, path, hasPath := document.Get(o, "path")
		text, isText := path.(string)
		if hasPath && !isText {
			return nil, document.Bad(document.InvalidPath, "The path of operation %d is not a text.", i+1)
		}
		_, value, hasValue := document.Get(o, "value")
		if !hasValue && op == Add {
			return nil, document.Bad(document.InvalidValue, "Operation %d has no value.", i+1)
		}
		operations[i] = Operation{op, text, value}
	}
	return operations, nil
}

// Apply returns a copy of a resource with the operations applied in their order. It returns a *document.Error if one of
// them cannot be applied. An operation may set id, schemas, meta and groups only as a part of the whole resource, and
// then these attributes are ignored.
func Apply(resource document.Object, operations []Operation) (document.Object, error) {
	out := document.Clone(resource)
	for _, op := range operations {
		if err := op.apply(out); err != nil {
			return nil, err
		}
	}
	return out, nil
}

var readOnly = map[string]bool{"id": true, "schemas": true, "meta": true, "groups": true}

func (op Operation) apply(resource document.Object) error {
	if strings.TrimSpace(op.Path) != "" {
		return op.applyAt(resource, op.Path, op.Value)
	}
	if op.Op == Remove {
		return document.Bad(document.NoTarget, "The operation remove needs a path.")
	}
	attributes, ok := op.Value.(document.Object)
	if !ok {
		return document.Bad(document.InvalidValue, "Without a path, the value must be an object.")
	}
	for name, v := range attributes {
		if readOnly[document.Name(name)] {
			continue
		}
		if err := op.applyAt(resource, name, v); err != nil {
			return err
		}
	}
	return nil
}

// applyAt applies the operation with a value to the attribute at a path.
func (op Operation) applyAt(resource document.Object, text string, value any) error {
	if _, v, ok := document.Get(resource, text); ok && strings.Contains(text, ":") { // an extension of another schema
		if extension, ok := v.(document.Object); ok {
			return op.applyExtension(resource, text, extension, value)
		}
	}
	path, err := filter.ParsePath(text)
	if err != nil {
		if _, isObject := value.(document.Object); isObject && op.Path == "" && strings.HasPrefix(text, "urn:") {
			return op.applyExtension(resource, text, document.Object{}, value)
		}
		return err
	}
	if path.Schema == "" && readOnly[path.Attribute] {
		return document.Bad(document.Mutability, "The attribute %s cannot be changed.", path.Attribute)
	}
	target := resource
	if path.Schema != "" {
		if isWholeExtension(op, path, value) {
			path = filter.Path{Schema: text}
		}
		key, v, _ := document.Get(resource, path.Schema)
		extension, _ := v.(document.Object)
		if path.Attribute == "" {
			return op.applyExtension(resource, path.Schema, extension, value)
		}
		if extension == nil {
			extension = document.Object{}
		}
		defer func() { // the object of an extension exists only while it has attributes
			if delete(resource, key); len(extension) > 0 {
				resource[key] = extension
			}
		}()
		target = extension
	}
	if op.Op == Remove || value == nil {
		return remove(target, path, value)
	}
	if value, err = document.NormalizeValue(lastName(path), value); err != nil {
		return err
	}
	return op.set(target, path, value)
}

// isWholeExtension reports whether a name in a map of attributes is an extension that this service does not know.
func isWholeExtension(op Operation, path filter.Path, value any) bool {
	_, isObject := value.(document.Object)
	return op.Path == "" && isObject && !document.IsSchema(path.Schema) && path.Attribute != ""
}

func lastName(path filter.Path) string {
	if path.Sub != "" {
		return path.Sub
	}
	return path.Attribute
}

// applyExtension changes all attributes of an extension.
func (op Operation) applyExtension(
	resource document.Object, schema string, extension document.Object, value any,
) error {
	key, _, _ := document.Get(resource, schema)
	if op.Op == Remove || value == nil {
		delete(resource, key)
		return nil
	}
	attributes, ok := value.(document.Object)
	if !ok {
		return document.Bad(document.InvalidValue, "The value of an extension must be an object.")
	}
	if extension == nil {
		extension = document.Object{}
	}
	for name, v := range attributes {
		path, err := filter.ParsePath(name)
		if err != nil {
			return err
		}
		if v == nil {
			err = remove(extension, path, nil)
		} else if v, err = document.NormalizeValue(lastName(path), v); err == nil {
			err = op.set(extension, path, v)
		}
		if err != nil {
			return err
		}
	}
	if delete(resource, key); len(extension) > 0 {
		resource[key] = extension
	}
	return nil
}
