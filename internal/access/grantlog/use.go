package grantlog

import (
	"context"
	"slices"
	"strconv"
	"time"

	"github.com/holdfast-dev/holdfast/internal/access/iamdb"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store"
)

// A Use is a grant and its capabilities that were used.
type Use struct {
	iamdb.Grant
	Capabilities resource.Capabilities
}

// usesBatch is the number of grants that one transaction writes. It is small, so that other writers do not wait long.
const usesBatch = 200

// useSince is the setting with the time at which the recording of use began.
const useSince = "use recorded since"

// RecordUses records that grants were used at a time, unless a later use is already recorded. It skips grants that no
// longer exist.
func (s *Store) RecordUses(ctx context.Context, uses []Use, lastUse time.Time) error {
	for batch := range slices.Chunk(uses, usesBatch) {
		err := s.Write(ctx, func(t *store.Tx) error {
			for _, u := range batch {
				if err := recordUse(ctx, t, u, lastUse); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func recordUse(ctx context.Context, t *store.Tx, u Use, lastUse time.Time) error {
	q := store.Query{Engine: t.DB.Engine}
	var caps []int64
	for _, c := range u.Capabilities.All() {
		caps = append(caps, int64(c.Number()))
	}
	slices.Sort(caps) // a fixed order, so that two replicas cannot deadlock
	text := `INSERT INTO binding_uses (binding, capability, last_ms)
		SELECT t.seg, s.v, CAST(` + q.Arg(store.MS(lastUse)) + ` AS BIGINT)
		FROM ` + iamdb.BindingRows + ` AS t CROSS JOIN ` + t.DB.Engine.Unnest(&q, caps) + ` AS s
		WHERE t.parent = ` + q.Arg(store.Segment(u.Group)) + ` AND t.identity = ` + q.Arg(string(u.Identity)) + `
			AND t.role = ` + q.Arg(store.Segment(u.Role)) + `
			AND t.expire_ms = ` + q.Arg(u.ExpireMS) + ` AND t.start_ms = ` + q.Arg(u.StartMS) + `
		ORDER BY s.v` + t.DB.Engine.ForShare + ` ON CONFLICT (binding, capability) DO UPDATE SET last_ms = excluded.last_ms
		WHERE binding_uses.last_ms < excluded.last_ms`
	return t.Later(ctx, text, q.Args...)
}

// UsesRecordedSince returns the time at which the recording of use began in this installation: the time of the first
// call.
func (s *Store) UsesRecordedSince(ctx context.Context) (time.Time, error) {
	value, err := s.Setting(ctx, useSince)
	if err != nil {
		value, err = s.InitSetting(ctx, useSince, []byte(strconv.FormatInt(store.MS(s.Time()), 10)))
	}
	if err != nil {
		return time.Time{}, err
	}
	ms, err := strconv.ParseInt(string(value), 10, 64)
	return store.FromMS(ms), err
}

// UsesOf returns the time of the last use of each capability of bindings.
func (s *Store) UsesOf(
	ctx context.Context, bindings []resource.UID,
) (map[resource.UID]map[resource.Capability]time.Time, error) {
	uses := map[resource.UID]map[resource.Capability]time.Time{}
	if len(bindings) == 0 {
		return uses, nil
	}
	q := store.Query{Engine: s.Engine}
	text := `SELECT b.uid, u.capability, u.last_ms FROM ` + s.Engine.Unnest(&q, distinct(bindings)) + ` AS s
		CROSS JOIN ` + iamdb.BindingRows + ` AS b CROSS JOIN binding_uses AS u WHERE b.uid = s.v AND u.binding = b.seg`
	err := s.Rows(ctx, text, q.Args, func(row store.Scanner) (bool, error) {
		var uid resource.UID
		var number, last int64
		if err := row.Scan(&uid, &number, &last); err != nil {
			return false, err
		}
		c, ok := resource.CapabilityNumbered(int32(number))
		if !ok {
			return false, nil
		}
		if uses[uid] == nil {
			uses[uid] = map[resource.Capability]time.Time{}
		}
		uses[uid][c] = store.FromMS(last)
		return false, nil
	})
	return uses, err
}
