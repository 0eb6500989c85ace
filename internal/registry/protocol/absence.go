package protocol

import (
	"errors"
	"net/http"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/registry/upstream"
)

const (
	absentFor      = 30 * time.Second // for which it is remembered that an upstream does not have something
	absencesCached = 1 << 14
)

// errRemembered is the cause of an error about what an upstream did not have, and was not asked for again.
var errRemembered = errors.New("it was asked a moment ago")

// An absenceKey names what an upstream may not have: a tag or a digest of one of its repos. Other settings are other keys.
type absenceKey struct {
	upstream   resource.UID
	version    time.Time
	kind, repo string
	reference  string
}

// absences remember for a short time what upstreams do not have, so that a client that asks in a loop does not have us ask
// them in one. It is safe for concurrent use.
type absences struct {
	until *lru.Cache[absenceKey, time.Time]
}

func newAbsences() absences {
	until, _ := lru.New[absenceKey, time.Time](absencesCached) // fails for sizes below one only
	return absences{until}
}

// key names something of the repo that a mirror is a copy of.
func (m *mirror) key(kind, reference string) absenceKey {
	return absenceKey{m.UID, m.UpdateTime, kind, m.repo(), reference}
}

// note notes what came of asking for something.
func (a absences) note(key absenceKey, err error, now time.Time) {
	if upstream.NotFound(err) {
		a.until.Add(key, now.Add(absentFor))
	}
}

// err returns an error for which upstream.NotFound is true if the upstream did not have something a moment ago.
func (a absences) err(key absenceKey, now time.Time) error {
	until, ok := a.until.Get(key)
	if !ok || !now.Before(until) {
		return nil
	}
	return &upstream.Error{Status: http.StatusNotFound, Reason: "it did not have it a moment ago", Cause: errRemembered}
}
