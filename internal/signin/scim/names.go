package scim

import (
	"encoding/json"
	"strings"

	"github.com/holdfast-dev/holdfast/internal/signin/input"
	"github.com/holdfast-dev/holdfast/internal/signin/scim/document"
)

// A namedBy says which attribute names the resources of a type, and how long their names may be.
type namedBy struct {
	attribute     string
	maxName       int // in bytes
	maxExternalID int // in bytes
}

// names are the attributes of a resource, and its two names among them.
type names struct {
	name, externalID string
	attributes       document.Object
}

// readNames returns the storable attributes of o with the names of the resource. Without externalId in o, the resource
// keeps the externalId that it has.
func readNames(o document.Object, by namedBy, externalID string) (n names, err error) {
	if n.attributes, err = document.Storable(o); err != nil {
		return n, err
	}
	var ok bool
	n.name, ok = n.attributes[by.attribute].(string)
	if !ok || strings.TrimSpace(n.name) == "" || len(n.name) > by.maxName || !input.Readable(n.name) {
		return n, document.Bad(document.InvalidValue, "The attribute %s must be a text of 1 to %d bytes.", by.attribute,
			by.maxName)
	}
	if number, ok := n.attributes["externalId"].(json.Number); ok {
		n.attributes["externalId"] = number.String()
	}
	n.externalID = externalID
	if v, ok := n.attributes["externalId"]; ok {
		if n.externalID, ok = v.(string); !ok || len(n.externalID) > by.maxExternalID || !input.Readable(n.externalID) {
			return n, document.Bad(document.InvalidValue, "The attribute externalId must be a text of at most %d bytes.",
				by.maxExternalID)
		}
	}
	if delete(n.attributes, "externalId"); n.externalID != "" {
		n.attributes["externalId"] = n.externalID
	}
	return n, nil
}
