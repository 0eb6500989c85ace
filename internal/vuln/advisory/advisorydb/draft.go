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

// A draft is an advisory as it will be written. It is computed before the
// transaction, so that others can write meanwhile.
type draft struct {
	a              vuln.Advisory
	body, affected string
	partition      int64
	signature      string
	names, aliases []int64 // what their keys are made of, each once
	text           string  // what is searched
}

// A signature has those fields of an advisory that lists filter by and that have few
// values. The advisories of a group that agree in it are a partition: a list with
// such filters, however they are combined, is a merge of partitions, and its total
// the sum of their counters.
type signature struct {
	Type          string   `json:"t,omitempty"`
	Architecture  string   `json:"a,omitempty"`
	ComponentType string   `json:"c,omitempty"`
	States        uint32   `json:"s,omitempty"` // bits
	Events        uint32   `json:"e,omitempty"` // bits
	Latest        int32    `json:"l,omitempty"`
	Authors       []string `json:"w,omitempty"`
	Reviewers     []string `json:"r,omitempty"`
}

// A field says which field of an advisory a key is of.
type field byte

const (
	artifactName field = iota + 1
	componentName
	componentLocation
	alias
	legacyID
)

// newDraft computes the row of an advisory of a group.
func newDraft(group resource.UID, a vuln.Advisory) (draft, error) {
	d := draft{a: a}
	affected, err := encodeAffected(a.Affected)
	if err != nil {
		return d, err
	}
	a.Affected = nil
	a.Events = slices.Clone(a.Events)
	for i := range a.Events { // below the advisory: its last segment will do
		e := &a.Events[i]
		e.UID = e.UID[strings.LastIndexByte(string(e.UID), '/')+1:]
	}
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

// nonNil returns b for a column that is never NULL.
func nonNil(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	return b
}

func encodeAffected(all []vuln.Affected) (string, error) {
	b, err := json.Marshal(all)
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

// matches reports whether advisories with this signature pass the filters of its
// fields.
func (s signature) matches(f vuln.AdvisoryFilter) bool {
	return oneOf(f.ArtifactTypes, s.Type) && oneOf(f.ArtifactArchitectures, s.Architecture) &&
		oneOf(f.ComponentTypes, s.ComponentType) &&
		anyBit(f.ReviewStates, s.States) && anyBit(f.EventTypes, s.Events) &&
		(f.LatestEventType == vuln.EventUnspecified || int32(f.LatestEventType) == s.Latest) &&
		overlap(f.EventAuthors, s.Authors) && overlap(f.EventReviewers, s.Reviewers) &&
		(len(f.NotEventAuthors) == 0 || !overlap(f.NotEventAuthors, s.Authors))
}

// filtersPartitions reports whether the filter has a field of signatures.
func filtersPartitions(f vuln.AdvisoryFilter) bool {
	return len(f.ArtifactTypes)+len(f.ArtifactArchitectures)+len(f.ComponentTypes)+len(f.ReviewStates)+len(f.EventTypes)+
		len(f.EventAuthors)+len(f.EventReviewers)+len(f.NotEventAuthors) > 0 || f.LatestEventType != vuln.EventUnspecified
}

func oneOf(wanted []string, s string) bool { return len(wanted) == 0 || slices.Contains(wanted, s) }

func anyBit[T ~int32](wanted []T, bits uint32) bool {
	return len(wanted) == 0 || slices.ContainsFunc(wanted, func(b T) bool { return bits&(1<<b) != 0 })
}

func overlap(wanted, have []string) bool {
	return len(wanted) == 0 || slices.ContainsFunc(wanted, func(s string) bool { return slices.Contains(have, s) })
}

// keyOf returns the key of a value in a group: 64 bits of a hash, which two values
// of one database practically never share.
func keyOf(group resource.UID, f field, value string) int64 {
	b := make([]byte, 0, 128)
	b = binary.BigEndian.AppendUint64(b, uint64(store.Segment(group)))
	b = append(b, byte(f))
	b = append(b, value...)
	sum := sha256.Sum256(b)
	return int64(binary.BigEndian.Uint64(sum[:]))
}

// searchText returns the text of an advisory that a query searches: its id, its
// names and its aliases, in lower case, each ended by a NUL.
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

// initNew gives an advisory that is new in a group its UID and its times.
func initNew(a *vuln.Advisory, group resource.UID, now time.Time) {
	a.UID = group.NewRisingChild(now)
	a.CreateTime, a.UpdateTime = now, now
	nameEvents(a, now)
}

// nameEvents gives those events that have none a UID and a time, and sorts them
// by it.
func nameEvents(a *vuln.Advisory, now time.Time) {
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

// sameRecord reports whether two digests are of the same record. An advisory that
// was written by hand has none, and never equals a record of a source.
func sameRecord(a, b []byte) bool { return len(a) > 0 && bytes.Equal(a, b) }
