package registrydb

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/page"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/registry"
	"github.com/holdfast-dev/holdfast/internal/store"
)

var tags = store.Kind[registry.Tag]{
	Table: "tags", Label: "tag", ParentTables: "repos", Unique: "parent, name",
	Created: resource.TagCreated, Updated: resource.TagCreated, Deleted: resource.TagDeleted,
	Columns: func(g *registry.Tag) []store.Column {
		return []store.Column{
			store.Key(&g.UID),
			store.Text("name", &g.Name).Order("name").Fixed(),
			store.Derived("class", int64(resource.ClassOf(g.Name))).Fixed(),
			store.Text("digest", &g.Digest),
			store.Flag("deprecated", &g.Deprecated),
			store.JSON("bundles", &g.Bundles).Empty(len(g.Bundles) == 0),
			store.Time("create_ms", &g.CreateTime).Order("create_time").Fixed(),
			store.Time("update_ms", &g.UpdateTime).Order("update_time"),
		}
	},
}

// Tag returns a tag, or fault.NotFound.
func (s *Store) Tag(ctx context.Context, uid resource.UID) (registry.Tag, error) {
	return store.Get(ctx, s.DB, &tags, uid)
}

// Tags returns one page of tags: the plain tags, and the tags of the classes in the filter.
func (s *Store) Tags(
	ctx context.Context, r store.Reach, f resource.Filter, p page.Request,
) (page.Page[registry.Tag], error) {
	f.Classes = append([]resource.TagClass{resource.PlainTag}, f.Classes...)
	return store.List(ctx, s.DB, &tags, r, f, p)
}

// TagNames returns up to n names of tags of a repo after last, in the order of their bytes. For a repo that does not
// exist it returns no names and no error.
func (s *Store) TagNames(ctx context.Context, repo resource.UID, last string, n int) ([]string, error) {
	names, err := store.ReadColumn[string](ctx, s.Rows,
		`SELECT name FROM tags WHERE parent = $1 AND name > $2 ORDER BY name LIMIT $3`, store.Segment(repo), last, n)
	return append([]string{}, names...), err
}

// PutTag points a tag of a repo at one of its manifests. A tag that does not exist is created with the UID of g. If g
// has no digest, an existing tag keeps its digest, and for a new tag PutTag returns fault.InvalidArgument.
//
// PutTag returns fault.NotFound if there is no such repo or manifest. It returns fault.FailedPrecondition if an
// existing tag would move and frozen forbids it, or if the tag would be created or moved in a repo that follows
// another.
func (s *Store) PutTag(ctx context.Context, g registry.Tag, frozen func(name string) bool) (out registry.Tag, _ error) {
	err := s.write(ctx, func(t Tx) (err error) {
		if err := t.Require(ctx, "repos", "repo", g.UID.Parent()); err != nil {
			return err
		}
		before, err := t.tagNamed(ctx, g)
		if err != nil && !errors.Is(err, fault.NotFound) {
			return err
		}
		if g.Digest != "" && g.Digest != before.Digest {
			if err := t.requireUnfollowing(ctx, g.UID.Parent()); err != nil {
				return err
			}
		}
		out, err = t.setTag(ctx, g, known(frozen))
		return err
	})
	return out, err
}

// frozenTags reports whether a tag must not be moved. It is called only for a tag that is about to move.
type frozenTags func(name string) (bool, error)

// known returns a frozenTags for settings that the caller has already read. frozen may be nil.
func known(frozen func(string) bool) frozenTags {
	return func(name string) (bool, error) { return frozen != nil && frozen(name), nil }
}

// frozenIn returns a frozenTags for the settings that apply to a group. It reads the settings each time it is called.
func (s *Store) frozenIn(ctx context.Context, t Tx, group resource.UID) frozenTags {
	return func(name string) (bool, error) {
		set, err := s.settingsAbove(ctx, group, t.Row)
		return set.Frozen(name), err
	}
}

// setTag creates or moves a tag and records the move. If nothing changes, it adds neither an event nor a move.
// It first tries to insert the tag, because most tags are new.
func (t Tx) setTag(ctx context.Context, g registry.Tag, frozen frozenTags) (registry.Tag, error) {
	g.UpdateTime = t.DB.Time()
	for range 3 {
		if g.Digest != "" {
			g.CreateTime = g.UpdateTime
			if added, err := t.insertTag(ctx, g); err != nil || added {
				return g, err
			}
		}
		before, err := t.tagNamed(ctx, g)
		if err == nil {
			return t.changeTag(ctx, before, g, frozen)
		}
		if !errors.Is(err, fault.NotFound) {
			return g, err
		}
		if g.Digest == "" {
			return g, DigestRequired(g.Name)
		}
		// The tag was deleted between the two statements.
	}
	return g, fault.New(fault.Aborted, "Aborted: other requests keep deleting the tag; try again")
}

// changeTag is setTag for an existing tag. before is its current state.
func (t Tx) changeTag(ctx context.Context, before, g registry.Tag, frozen frozenTags) (registry.Tag, error) {
	g.UID, g.CreateTime, g.Digest = before.UID, before.CreateTime, cmp.Or(g.Digest, before.Digest)
	moved := g.Digest != before.Digest
	if !moved && g.Deprecated == before.Deprecated && fmt.Sprint(g.Bundles) == fmt.Sprint(before.Bundles) {
		return before, nil
	}
	if moved {
		if kept, err := frozen(g.Name); err != nil || kept {
			return g, cmp.Or(err, immutable(g.Name))
		}
	}
	err := t.updateTag(ctx, before, &g)
	return g, err
}

// DigestRequired returns the error for a request that would create a tag but has no digest.
func DigestRequired(tag string) error {
	return fault.Field("digest", "is required, because there is no tag %s yet", tag)
}

func immutable(tag string) error {
	return fault.Unmet("TAG_IMMUTABLE", "tag %s is immutable here", tag)
}

// tagNamed reads and locks the tag with the name and the repo of g. It returns fault.NotFound if there is none.
func (t Tx) tagNamed(ctx context.Context, g registry.Tag) (registry.Tag, error) {
	return store.One(ctx, t.Rows, &tags, resource.UID(g.Name),
		` WHERE t.parent = $1 AND t.name = $2`+t.DB.Engine.ForUpdate, store.Segment(g.UID.Parent()), g.Name)
}

// insertTag adds a tag. It reports false if its repo already has a tag of that name.
func (t Tx) insertTag(ctx context.Context, g registry.Tag) (bool, error) {
	switch err := store.InsertRow(ctx, t.Tx, &tags, g); {
	case errors.Is(err, fault.AlreadyExists):
		return false, nil
	case errors.Is(err, fault.NotFound):
		return false, fault.Missing("manifest", g.Digest)
	case err != nil:
		return false, err
	}
	return true, t.noteTag(ctx, g)
}

// noteTag records the first move of a new tag, counts the tag and adds its event. The event names the organization as
// its group, as the API does.
func (t Tx) noteTag(ctx context.Context, g registry.Tag) error {
	if err := t.recordMove(ctx, g, g.Digest, g.UpdateTime); err != nil {
		return err
	}
	return t.Added(ctx, store.TagCounter(resource.ClassOf(g.Name)), resource.TagCreated, g.UID, g.UID.Root(), g)
}

func (t Tx) updateTag(ctx context.Context, before registry.Tag, g *registry.Tag) error {
	err := store.Update(ctx, t.Tx, &tags, before, g)
	if errors.Is(err, fault.NotFound) {
		return fault.Missing("manifest", g.Digest)
	}
	if err == nil && before.Digest != g.Digest {
		err = t.recordMove(ctx, *g, g.Digest, g.UpdateTime)
	}
	return err
}

// recordMove adds an entry to the history of a tag: from the time at on, the tag points to digest. digest is "" if
// the tag was deleted.
func (t Tx) recordMove(ctx context.Context, g registry.Tag, digest string, at time.Time) error {
	actor, err := store.Encode(resource.ActorFrom(ctx))
	if err != nil {
		return err
	}
	if err := t.queueTagged(ctx, g.UID.Parent(), g.Name); err != nil {
		return err
	}
	return t.Later(ctx, `INSERT INTO tag_history (repo, name, digest, actor, at_ms) VALUES ($1, $2, $3, $4, $5)`,
		store.Segment(g.UID.Parent()), g.Name, digest, actor, store.MS(at))
}

// DeleteTag removes a tag but not its manifest. It returns fault.NotFound if there is no such tag, and
// fault.FailedPrecondition if frozen forbids it or if the repo follows another.
func (s *Store) DeleteTag(ctx context.Context, uid resource.UID, frozen func(name string) bool) error {
	return s.write(ctx, func(t Tx) error {
		d, err := s.DeletionFrom(ctx, t, uid.Parent())
		if err != nil {
			return notIn(err, "tag", string(uid))
		}
		g, err := store.Lock(ctx, t.Tx, &tags, uid, s.Engine.ForDelete)
		if err != nil {
			return err
		}
		return t.DeleteTag(ctx, g, frozen, d)
	})
}

// DeleteTagNamed is DeleteTag by the tag's name in its repo.
func (s *Store) DeleteTagNamed(
	ctx context.Context, repo resource.UID, name string, frozen func(name string) bool,
) error {
	return s.write(ctx, func(t Tx) error {
		d, err := s.DeletionFrom(ctx, t, repo)
		if err != nil {
			return notIn(err, "tag", name)
		}
		g, err := t.tagNamed(ctx, registry.Tag{UID: repo + "/", Name: name})
		if err != nil {
			return err
		}
		return t.DeleteTag(ctx, g, frozen, d)
	})
}

// LockTagsNotIn locks and returns up to n tags of a repo that another repo does not have, after last in the order of
// their names.
func (t Tx) LockTagsNotIn(ctx context.Context, repo, other resource.UID, last string, n int) ([]registry.Tag, error) {
	return tags.All(ctx, t.Rows, ` WHERE t.parent = $1 AND t.name > $3 AND NOT EXISTS
		(SELECT 1 FROM tags AS s WHERE s.parent = $2 AND s.name = t.name) ORDER BY t.name LIMIT $4`+t.DB.Engine.ForDelete,
		store.Segment(repo), store.Segment(other), last, n)
}

// DeleteTag removes a locked tag but not its manifest. It returns fault.FailedPrecondition if frozen, which may
// be nil, forbids it, or if d.Follows is set.
func (t Tx) DeleteTag(ctx context.Context, g registry.Tag, frozen func(string) bool, d Deletion) error {
	if d.Follows {
		return follows()
	}
	if frozen != nil && frozen(g.Name) {
		return immutable(g.Name)
	}
	if _, err := t.Exec(ctx, `DELETE FROM tags WHERE seg = $1`, store.Segment(g.UID)); err != nil {
		return err
	}
	if err := t.trashTag(ctx, g, d); err != nil {
		return err
	}
	if err := t.recordMove(ctx, g, "", t.DB.Time()); err != nil {
		return err
	}
	return t.Removed(ctx, store.TagCounter(resource.ClassOf(g.Name)), resource.TagDeleted, g.UID, g.UID.Root(), g)
}

// TagHistory returns one page of the moves of a tag of a repo, newest first. If name is "", it returns the
// moves of all tags.
func (s *Store) TagHistory(
	ctx context.Context, repo resource.UID, name string, p page.Request,
) (out page.Page[registry.TagMove], _ error) {
	q := store.Query{}
	where := `repo = ` + q.Arg(store.Segment(repo))
	if name != "" {
		where += ` AND name = ` + q.Arg(name)
	}
	if err := s.Row(ctx, `SELECT count(*) FROM tag_history WHERE `+where, q.Args, &out.Total); err != nil {
		return out, err
	}
	if p.After != nil {
		where += ` AND seq < ` + q.Arg(p.After.Number)
	}
	text := `SELECT seq, name, digest, actor, at_ms FROM tag_history WHERE ` + where + `
		ORDER BY seq DESC LIMIT ` + q.Arg(p.Size+1) + ` OFFSET ` + q.Arg(p.Skip)
	err := s.Rows(ctx, text, q.Args, func(row store.Scanner) (bool, error) {
		m := registry.TagMove{Repo: repo}
		var actor string
		var at int64
		if err := row.Scan(&m.Seq, &m.Name, &m.Digest, &actor, &at); err != nil {
			return false, err
		}
		m.Time = store.FromMS(at)
		err := json.Unmarshal([]byte(actor), &m.Actor)
		out.Items = append(out.Items, m)
		return false, err
	})
	if err == nil && len(out.Items) > p.Size {
		out.Items = out.Items[:p.Size]
		out.Last = &page.Cursor{Number: out.Items[p.Size-1].Seq}
	}
	return out, err
}

// PruneTagHistory deletes moves of tags that are older than a time. For each tag it keeps the move that was the latest
// at that time, so that the state of the tag is known since then. It examines the n moves after the one with number
// after, and returns the number of the last of them, or 0 if none of them is older. Call it until it returns 0.
func (s *Store) PruneTagHistory(
	ctx context.Context, before time.Time, after int64, n int,
) (last int64, gone int, _ error) {
	var highest, oldest sql.NullInt64
	err := s.Row(ctx, `SELECT max(b.seq), min(b.at_ms) FROM
		(SELECT seq, at_ms FROM tag_history WHERE seq > $1 ORDER BY seq LIMIT $2) AS b`, []any{after, n}, &highest, &oldest)
	if err != nil || !oldest.Valid || oldest.Int64 >= store.MS(before) {
		return 0, 0, err
	}
	// A deletion is needed while an older move remains, because otherwise the tag would seem to exist.
	moves, err := store.ReadColumn[int64](ctx, s.Rows, `SELECT h.seq FROM tag_history AS h
		WHERE h.seq > $1 AND h.seq <= $2 AND h.at_ms < $3 AND (
			EXISTS (SELECT 1 FROM tag_history AS later
				WHERE later.repo = h.repo AND later.name = h.name AND later.seq > h.seq AND later.at_ms < $3)
			OR h.digest = '' AND NOT EXISTS (SELECT 1 FROM tag_history AS earlier
				WHERE earlier.repo = h.repo AND earlier.name = h.name AND earlier.seq < h.seq))
		ORDER BY h.seq`, after, highest.Int64, store.MS(before))
	if err != nil || len(moves) == 0 {
		return highest.Int64, 0, err
	}
	err = s.write(ctx, func(t Tx) error {
		q := store.Query{Engine: s.Engine}
		deleted, err := t.Exec(ctx, `DELETE FROM tag_history WHERE seq IN (SELECT v FROM `+s.Engine.Unnest(&q, moves)+
			` AS s)`, q.Args...)
		gone = int(deleted)
		return err
	})
	return highest.Int64, gone, err
}

// TagNamed returns the tag of that name in a repo, or fault.NotFound.
func (s *Store) TagNamed(ctx context.Context, repo resource.UID, name string) (registry.Tag, error) {
	return store.One(ctx, s.Rows, &tags, resource.UID(name), ` WHERE t.parent = $1 AND t.name = $2`,
		store.Segment(repo), name)
}
