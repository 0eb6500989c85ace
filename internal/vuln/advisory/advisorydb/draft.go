package advisorydb

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/internal/vuln"
)

// A draft is an advisory with its columns and index keys, ready to be written. It is computed before the transaction,
// so that the transaction blocks other writers for a shorter time.
type draft struct {
	a              vuln.Advisory
	body, affected string
	partition      int64
	signature      string
	names, aliases []int64 // hashes from which generation.key makes index keys; sorted, each once
	text           string  // see searchText
}

// A signature contains the fields of an advisory by which lists filter and which have few values. The advisories of a
// group with equal signatures are a partition. A list with any combination of such filters is a merge of partitions,
// and its total is the sum of their counters.
type signature struct {
	Type          string   `json:"t,omitempty"`
	Architecture  string   `json:"a,omitempty"`
	ComponentType string   `json:"c,omitempty"`
	States        uint32   `json:"s,omitempty"` // bit set of the review states of all events
	Events        uint32   `json:"e,omitempty"` // bit set of the types of all events
	Latest        int32    `json:"l,omitempty"`
	Authors       []string `json:"w,omitempty"`
	Reviewers     []string `json:"r,omitempty"`
}

// A field is a field of an advisory whose values have keys in an index.
type field byte

const (
	artifactName field = iota + 1
	componentName
	componentLocation
	alias
	legacyID
)

// newDraft computes the columns and index keys of an advisory in a group.
func newDraft(group resource.UID, a vuln.Advisory) (draft, error) {
	d := draft{a: a}
	affected, err := encodeAffected(a.Affected)
	if err != nil {
		return d, err
	}
	a.Affected = nil
	a.Events = slices.Clone(a.Events)
	for i := range a.Events { // an event's parent is the advisory, so the last segment of its UID is enough to store
		e := &a.Events[i]
		e.UID = e.UID[strings.LastIndexByte(string(e.UID), '/')+1:]
	}
	// The stored aliases contain the names of both relations, because the previous version knows only one.
	a.Aliases = vuln.JoinRelations(a.Aliases, a.Fixes)
	body, err := json.Marshal(a)
	if err != nil {
		return d, fmt.Errorf("encode advisory: %w", err)
	}
	d.body, d.affected = string(body), affected
	sign, err := json.Marshal(signatureOf(a))
	if err != nil {
		return d, fmt.Errorf("encode signature: %w", err)
	}
	d.signature = string(sign)
	d.partition = keyOf(group, 0, d.signature)
	names := d.a.Names()
	for _, name := range names {
		d.names = append(d.names, keyOf(group, artifactName, name))
	}
	if a.ComponentName != "" {
		d.names = append(d.names, keyOf(group, componentName, a.ComponentName))
	}
	if a.ComponentLocation != "" {
		d.names = append(d.names, keyOf(group, componentLocation, a.ComponentLocation))
	}
	for _, s := range a.Aliases {
		d.aliases = append(d.aliases, keyOf(group, alias, s))
	}
	if a.LegacyID != "" {
		d.aliases = append(d.aliases, keyOf(group, legacyID, a.LegacyID))
	}
	slices.Sort(d.names)
	slices.Sort(d.aliases)
	d.names, d.aliases = slices.Compact(d.names), slices.Compact(d.aliases)
	d.text = searchText(a, names)
	return d, nil
}

// nonNil returns b, or an empty slice if b is nil, for a column that must not be NULL.
func nonNil(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	return b
}

func encodeAffected(affected []vuln.Affected) (string, error) {
	b, err := json.Marshal(affected)
	if err != nil {
		return "", fmt.Errorf("encode affected packages: %w", err)
	}
	return string(b), nil
}

func signatureOf(a vuln.Advisory) signature {
	s := signature{Type: a.ArtifactType, Architecture: a.ArtifactArchitecture, ComponentType: a.ComponentType}
	for _, e := range a.Events {
		s.States |= 1 << e.ReviewState
		s.Events |= 1 << e.Type
		if e.Author != "" && !slices.Contains(s.Authors, e.Author) {
			s.Authors = append(s.Authors, e.Author)
		}
		if e.Reviewer != "" && !slices.Contains(s.Reviewers, e.Reviewer) {
			s.Reviewers = append(s.Reviewers, e.Reviewer)
		}
	}
	if latest := a.Latest(); latest != nil {
		s.Latest = int32(latest.Type)
	}
	slices.Sort(s.Authors)
	slices.Sort(s.Reviewers)
	return s
}

// matches reports whether advisories with this signature pass the filters for the fields of the signature.
func (s signature) matches(f vuln.AdvisoryFilter) bool {
	return oneOf(f.ArtifactTypes, s.Type) && oneOf(f.ArtifactArchitectures, s.Architecture) &&
		oneOf(f.ComponentTypes, s.ComponentType) &&
		anyBit(f.ReviewStates, s.States) && anyBit(f.EventTypes, s.Events) &&
		(f.LatestEventType == vuln.EventUnspecified || int32(f.LatestEventType) == s.Latest) &&
		overlap(f.EventAuthors, s.Authors) && overlap(f.EventReviewers, s.Reviewers) &&
		(len(f.NotEventAuthors) == 0 || !overlap(f.NotEventAuthors, s.Authors))
}

// filtersPartitions reports whether the filter is set for a field of the signature.
func filtersPartitions(f vuln.AdvisoryFilter) bool {
	values := len(f.ArtifactTypes) + len(f.ArtifactArchitectures) + len(f.ComponentTypes) + len(f.ReviewStates) +
		len(f.EventTypes) + len(f.EventAuthors) + len(f.EventReviewers) + len(f.NotEventAuthors)
	return values > 0 || f.LatestEventType != vuln.EventUnspecified
}

func oneOf(wanted []string, s string) bool { return len(wanted) == 0 || slices.Contains(wanted, s) }

func anyBit[T ~int32](wanted []T, bits uint32) bool {
	return len(wanted) == 0 || slices.ContainsFunc(wanted, func(b T) bool { return bits&(1<<b) != 0 })
}

func overlap(wanted, have []string) bool {
	return len(wanted) == 0 || slices.ContainsFunc(wanted, func(s string) bool { return slices.Contains(have, s) })
}

// keyOf returns a 64-bit hash of the group, the field and its value. Collisions within one database are extremely
// unlikely.
func keyOf(group resource.UID, f field, value string) int64 {
	b := make([]byte, 0, 128)
	b = binary.BigEndian.AppendUint64(b, uint64(store.Segment(group)))
	b = append(b, byte(f))
	b = append(b, value...)
	sum := sha256.Sum256(b)
	return int64(binary.BigEndian.Uint64(sum[:]))
}

// searchText returns the search text of an advisory: its ID, names and aliases, in lower case, each followed by a NUL.
func searchText(a vuln.Advisory, names []string) string {
	var b strings.Builder
	add := func(s string) {
		if s != "" {
			b.WriteString(strings.ToLower(s))
			b.WriteByte(0)
		}
	}
	add(a.ID)
	for _, s := range names {
		add(s)
	}
	add(a.ComponentName)
	for _, s := range a.Aliases {
		add(s)
	}
	return b.String()
}

// initNew sets the UID and the times of a new advisory in a group, and completes its events.
func initNew(a *vuln.Advisory, group resource.UID, now time.Time) {
	a.UID = group.NewRisingChild(now)
	a.CreateTime, a.UpdateTime = now, now
	completeEvents(a, now)
}

// completeEvents sets missing UIDs and times of the advisory's events, and sorts the events by time.
func completeEvents(a *vuln.Advisory, now time.Time) {
	a.Events = slices.Clone(a.Events)
	for i := range a.Events {
		e := &a.Events[i]
		if e.UID.Parent() != a.UID {
			e.UID = a.UID.NewChild()
		}
		for _, t := range []time.Time{a.Source.Modified, a.Source.Published, now} {
			if e.CreateTime.IsZero() {
				e.CreateTime = t
			}
		}
	}
	slices.SortStableFunc(a.Events, func(x, y vuln.AdvisoryEvent) int {
		return x.CreateTime.Compare(y.CreateTime)
	})
}

// sameRecord reports whether two digests belong to equal records of a source. An advisory that a person wrote has no
// digest, so it never equals a record.
func sameRecord(a, b []byte) bool { return len(a) > 0 && bytes.Equal(a, b) }
