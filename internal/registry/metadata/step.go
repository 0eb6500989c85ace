package metadata

import (
	"encoding/json"
	"strings"
	"time"

	"github.com/holdfast-dev/holdfast/internal/registry"
)

const (
	maxSteps   = 500
	maxCommand = 2000 // longest command in a step, in bytes
)

// A Step is one entry of the history in an image's configuration. It describes a layer or, if it has no digest, a
// change of the configuration.
type Step struct {
	registry.Layer
	Command string // command that created the layer
	Time    time.Time
}

// steps returns the build steps of an image, the lowest layer first. If the configuration has no
// history, or the history does not match the layers, each layer is one step.
func steps(layers []registry.Layer, config []byte) []Step {
	var c struct {
		History []struct {
			Created   string `json:"created"`
			CreatedBy string `json:"created_by"`
			Empty     bool   `json:"empty_layer"`
		} `json:"history"`
	}
	_ = json.Unmarshal(config, &c) // on failure there is no history; a client can push anything
	var all []Step
	rest := layers
	for _, h := range c.History {
		s := Step{Command: clipTo(h.CreatedBy, maxCommand), Time: madeAt(h.Created)}
		if !h.Empty {
			if len(rest) == 0 {
				return plainSteps(layers)
			}
			s.Layer, rest = rest[0], rest[1:]
		}
		all = append(all, s)
	}
	if len(rest) > 0 {
		return plainSteps(layers)
	}
	return all[:min(len(all), maxSteps)]
}

func plainSteps(layers []registry.Layer) []Step {
	list := make([]Step, 0, len(layers))
	for _, l := range layers[:min(len(layers), maxSteps)] {
		list = append(list, Step{Layer: l})
	}
	return list
}

// clipTo returns text if it has at most limit bytes. Otherwise it shortens the text and appends an ellipsis.
func clipTo(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	return strings.ToValidUTF8(text[:limit], "") + "…"
}

// madeAt parses a time in an image's configuration. It returns the zero time if the text is not a time, or if the API
// cannot represent the time.
func madeAt(text string) time.Time {
	t, err := time.Parse(time.RFC3339, text)
	if err != nil || t.UTC().Year() < 1 || t.UTC().Year() > 9999 {
		return time.Time{}
	}
	return t
}
