package admission

import (
	"fmt"
	"strings"
)

// An Action is what happens to an object with a certain image.
type Action string

// The actions, from the mildest to the strictest.
const (
	Allow  Action = "allow"
	Warn   Action = "warn"   // the object is accepted, and its author gets a warning
	Refuse Action = "refuse" // the object is not accepted
)

// ParseAction returns the action with a name.
func ParseAction(name string) (Action, error) {
	switch a := Action(name); a {
	case Allow, Warn, Refuse:
		return a, nil
	}
	return "", fmt.Errorf("%q is not one of allow, warn and refuse", name)
}

// A Mode says what the webhook does with objects that it would refuse. The address that the API server calls ends with
// the mode, so that the selectors of namespaces in the configuration of the webhook decide.
type Mode string

// The modes.
const (
	Enforce  Mode = "enforce" // refuse them
	WarnOnly Mode = "warn"    // accept them with a warning
	Audit    Mode = "audit"   // accept them, and write the reason to the audit log of the cluster only
)

// Rules say what happens to images about which Holdfast decides nothing.
type Rules struct {
	// Others are the actions for images of other registries, by the beginning of the name with its host, such as
	// docker.io/library/. The longest one applies. The beginning "" applies to all.
	Others map[string]Action

	Unknown     Action // for images of this registry that the cluster may not pull, or that do not exist
	Unreachable Action // for images about which Holdfast could not be asked
}

// other returns the action for an image of another registry.
func (r Rules) other(host, rest string) Action {
	if host == dockerHub && !strings.Contains(rest, "/") {
		rest = "library/" + rest
	}
	name, longest, action := host+"/"+rest, -1, Allow
	for prefix, a := range r.Others {
		if len(prefix) > longest && strings.HasPrefix(name, prefix) {
			longest, action = len(prefix), a
		}
	}
	return action
}
