package mirror

import (
	"errors"
	"net/http"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/registry/upstream"
)

const (
	absentFor      = 30 * time.Second // how long the server remembers that an upstream lacks a reference
	absencesCached = 1 << 14
)

// errRemembered is the cause of an error about a reference that the upstream lacked a moment ago. The upstream is not
// asked again for it.
var errRemembered = errors.New("it was asked a moment ago")

// An absenceKey identifies a tag or a digest in a repo of an upstream. It includes the version of the upstream's
// settings, so that a change of the settings invalidates the entry.
type absenceKey struct {
	upstream   resource.UID
	version    time.Time
	kind, repo string
	reference  string
}

// absences remembers for a short time which references upstreams do not have. If a client asks in a loop, the
// upstream therefore gets few requests. The type is safe for concurrent use.
type absences struct {
	until *lru.Cache[absenceKey, time.Time]
}

func newAbsences() absences {
	until, _ := lru.New[absenceKey, time.Time](absencesCached) // fails only for sizes below one
	return absences{until}
}

// key returns the absenceKey of a reference in the source repo.
func (s *Source) key(kind, reference string) absenceKey {
	return absenceKey{s.UID, s.UpdateTime, kind, s.repo(), reference}
}

// note records the outcome of a request for a reference. Only errors that satisfy upstream.NotFound are remembered.
func (a absences) note(key absenceKey, err error, now time.Time) {
	if upstream.NotFound(err) {
		a.until.Add(key, now.Add(absentFor))
	}
}

// err returns an error for which upstream.NotFound is true if the upstream did not have the reference a moment ago,
// and nil otherwise.
func (a absences) err(key absenceKey, now time.Time) error {
	until, ok := a.until.Get(key)
	if !ok || !now.Before(until) {
		return nil
	}
	return &upstream.Error{Status: http.StatusNotFound, Reason: "it did not have it a moment ago", Cause: errRemembered}
}
