package metadata

import (
	"encoding/json"
	"strings"
	"time"

	"github.com/holdfast-dev/holdfast/internal/registry"
)

const (
	maxSteps   = 500
	maxCommand = 2000 // bytes of what made a layer
)

// A Step is one line of how an image was made, as the image says itself: a layer, or a change of
// the configuration, which has no digest.
type Step struct {
	registry.Layer
	Command string // that made it
	Time    time.Time
}

// steps returns how an image was made, the lowest layer first. If the configuration does not tell,
// or not about these layers, they are all there is.
func steps(layers []registry.Layer, config []byte) []Step {
	var c struct {
		History []struct {
			Created   string `json:"created"`
			CreatedBy string `json:"created_by"`
			Empty     bool   `json:"empty_layer"`
		} `json:"history"`
	}
	_ = json.Unmarshal(config, &c) // a client can push anything
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
	all := make([]Step, 0, len(layers))
	for _, l := range layers[:min(len(layers), maxSteps)] {
		all = append(all, Step{Layer: l})
	}
	return all
}

// clipTo shortens a text to so many bytes, and says so.
func clipTo(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	return strings.ToValidUTF8(text[:limit], "") + "…"
}

// madeAt reads a time that an image has; the zero time if it is none that can be told on.
func madeAt(text string) time.Time {
	at, err := time.Parse(time.RFC3339, text)
	if err != nil || at.UTC().Year() < 1 || at.UTC().Year() > 9999 {
		return time.Time{}
	}
	return at
}
