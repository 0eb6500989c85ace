package format

import (
	"encoding/json"
	"strings"

	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/orgfile/model"
)

// A Schema is a JSON Schema, or a part of one.
type Schema struct {
	Schema      string             `json:"$schema,omitempty"`
	ID          string             `json:"$id,omitempty"`
	Title       string             `json:"title,omitempty"`
	Description string             `json:"description,omitempty"`
	Type        string             `json:"type,omitempty"`
	Const       string             `json:"const,omitempty"`
	Enum        []string           `json:"enum,omitempty"`
	Pattern     string             `json:"pattern,omitempty"`
	Items       *Schema            `json:"items,omitempty"`
	Properties  map[string]*Schema `json:"properties,omitempty"`
	Required    []string           `json:"required,omitempty"`
	Additional  any                `json:"additionalProperties,omitempty"`
}

// closed is false, for objects without further properties. A pointer keeps it in the JSON.
var closed = new(bool)

// JSONSchema returns the JSON Schema of files.
func JSONSchema() ([]byte, error) {
	root := &Schema{
		Schema: "https://json-schema.org/draft/2020-12/schema", ID: "https://" + Version + ".schema.json",
		Title: "Holdfast organization", Type: "object", Required: []string{"apiVersion", "group"}, Additional: closed,
		Properties: map[string]*Schema{
			"apiVersion": {Const: Version},
			"group": {Type: "string",
				Description: "The path of the group that the file is about. All paths are relative to it."},
			"manage": {Type: "array", Items: &Schema{Enum: names()},
				Description: "The kinds that the file has completely. Unless given, the kinds that it has a section for."},
		},
	}
	for _, k := range model.Kinds {
		root.Properties[k.Name] = &Schema{Type: "array", Description: k.About, Items: schemaOf(k)}
	}
	return json.MarshalIndent(root, "", "  ")
}

func schemaOf(k *model.Kind) *Schema {
	s := &Schema{Type: "object", Properties: map[string]*Schema{}, Additional: closed}
	if k.Named() {
		s.Required = []string{"path"}
	}
	for _, key := range placeKeys(k) {
		s.Properties[key] = &Schema{Type: "string", Description: map[string]string{
			"path": "The path below the group of the file, which ends in the name.",
			"in":   "The path of what contains it; the group of the file unless given.",
			"was":  "The previous path, to rename it instead of creating another one.",
		}[key]}
	}
	for i := range k.Fields {
		f := &k.Fields[i]
		outer, inner, nested := strings.Cut(f.Name, ".")
		if !nested {
			s.Properties[outer] = fieldSchema(k, f)
			continue
		}
		if s.Properties[outer] == nil {
			s.Properties[outer] = &Schema{Type: "object", Properties: map[string]*Schema{}, Additional: closed}
		}
		s.Properties[outer].Properties[inner] = fieldSchema(k, f)
	}
	return s
}

func fieldSchema(k *model.Kind, f *model.Field) *Schema {
	s := &Schema{Type: "string", Description: describe(f)}
	switch k.Type(f) {
	case model.Flag:
		s.Type = "boolean"
	case model.Number:
		s.Type = "integer"
	case model.Time:
		s.Pattern = `^\d{4}-\d{2}-\d{2}(T.*)?$`
	case model.Word:
		s.Enum = k.Words(f)
	case model.Texts:
		s.Type, s.Items = "array", &Schema{Type: "string"}
	case model.Words:
		s.Type, s.Items = "array", &Schema{Enum: k.Words(f)}
	case model.Table:
		s.Type, s.Additional = "object", &Schema{Type: "string"}
	}
	if f.Secret {
		s.Pattern = "^(env|file):.+$"
	}
	return s
}

// describe says how references and secrets are written.
func describe(f *model.Field) string {
	switch {
	case f.Secret:
		return "Where the secret is: env:NAME or file:PATH. Never the secret."
	case f.Ref == model.Identities:
		return "The e-mail address of a person, the path of a workload, or uid: and a uid."
	case f.Ref == model.Targets:
		return "The path of a folder, or repo: and the path of a repo. The folder that contains it unless given."
	case f.Ref == model.Roles:
		return "The path of a role below the group of the file, or its absolute path, such as /viewer for a managed role."
	case f.Ref != "":
		return "A path below the group of the file, or an absolute path that begins with a slash."
	}
	return ""
}
