package registrydb

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"strconv"
	"strings"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/page"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/registry"
	"github.com/holdfast-dev/holdfast/internal/store"
)

var repos = store.Kind[registry.Repo]{
	Table: "repos", Label: "repo", Unique: "parent, name",
	Created: resource.RepoCreated, Updated: resource.RepoUpdated, Deleted: resource.RepoDeleted,
	Columns: func(r *registry.Repo) []store.Column {
		detail := registry.Repo{Tier: r.Tier, Bundles: r.Bundles, Aliases: r.Aliases, ActiveTags: r.ActiveTags, Sync: r.Sync}
		return []store.Column{
			store.Detail("detail", detail, r),
			store.Key(&r.UID),
			store.Text("name", &r.Name).Order("name"),
			store.Text("description", &r.Description),
			store.Derived("readme", "").Fixed(), // RepoReadme reads this column
			store.Time("create_ms", &r.CreateTime).Order("create_time").Fixed(),
			store.Time("update_ms", &r.UpdateTime).Order("update_time"),
		}
	},
}

// InsertRepo adds r. It returns fault.AlreadyExists if its group already has a
// repo of that name, and fault.NotFound if its group does not exist.
func (s *Store) InsertRepo(ctx context.Context, r registry.Repo) error {
	return s.write(ctx, func(t Tx) error { return t.InsertRepo(ctx, r) })
}

// InsertRepo is Store.InsertRepo as part of a transaction.
func (t Tx) InsertRepo(ctx context.Context, r registry.Repo) error {
	if err := t.RequireGroup(ctx, r.UID.Parent()); err != nil {
		return err
	}
	return store.Insert(ctx, t.Tx, &repos, r)
}

// Repo returns a repo, or fault.NotFound.
func (s *Store) Repo(ctx context.Context, uid resource.UID) (registry.Repo, error) {
	return store.Get(ctx, s.DB, &repos, uid)
}

// Repos returns one page of repos.
func (s *Store) Repos(
	ctx context.Context, r store.Reach, f resource.Filter, p page.Request,
) (page.Page[registry.Repo], error) {
	return store.List(ctx, s.DB, &repos, r, f, p)
}

// UpdateRepo replaces before by after, with the same errors as iamdb.Store.UpdateGroup. If after has another source
// than before, or none, the repo stops following its source.
func (s *Store) UpdateRepo(ctx context.Context, before, after registry.Repo) (registry.Repo, error) {
	err := s.write(ctx, func(t Tx) error {
		if err := t.UpdateRepo(ctx, before, &after); err != nil {
			return err
		}
		if before.Sync == nil || after.Sync != nil && after.Sync.Source == before.Sync.Source {
			return nil
		}
		return t.Unfollow(ctx, after.UID)
	})
	return after, err
}

// UpdateRepo is Store.UpdateRepo as part of a transaction, except that it does not change which repo the repo
// follows.
func (t Tx) UpdateRepo(ctx context.Context, before registry.Repo, after *registry.Repo) error {
	if after.Name != before.Name {
		t.PathsChanged()
	}
	return store.Update(ctx, t.Tx, &repos, before, after)
}

// LockRepoKey locks a repo until the commit, so that no other transaction can add anything to it. It returns
// fault.NotFound if there is no such repo.
func (t Tx) LockRepoKey(ctx context.Context, repo resource.UID) error {
	_, err := store.Lock(ctx, t.Tx, &repos, repo, t.DB.Engine.ForDelete)
	return err
}

// RepoReadme returns the readme of a repo, or fault.NotFound if there is no such repo.
func (s *Store) RepoReadme(ctx context.Context, uid resource.UID) (registry.RepoReadme, error) {
	r := registry.RepoReadme{UID: uid}
	err := s.Row(ctx, `SELECT readme FROM repos WHERE uid = $1`, []any{string(uid)}, &r.Content)
	return r, store.Missing(err, "repo", uid)
}

// UpdateRepoReadme replaces the readme of a repo. If the readme is unchanged, nothing is written. It returns
// fault.NotFound if there is no such repo.
func (s *Store) UpdateRepoReadme(ctx context.Context, r registry.RepoReadme) error {
	return s.write(ctx, func(t Tx) error {
		before := registry.RepoReadme{UID: r.UID}
		err := t.Row(ctx, `SELECT t.readme FROM repos AS t WHERE t.uid = $1`+s.Engine.ForUpdate, []any{string(r.UID)},
			&before.Content)
		if err != nil {
			return store.Missing(err, "repo", r.UID)
		}
		if r == before {
			return nil
		}
		if _, err := t.Exec(ctx, `UPDATE repos SET readme = $2, update_ms = $3 WHERE uid = $1`, string(r.UID), r.Content,
			store.MS(s.Time())); err != nil {
			return err
		}
		return t.Emit(ctx, resource.RepoUpdated, r.UID, r.UID.Parent(), before, r)
	})
}

// DeleteRepo removes a repo with its tags and their history, its manifests, its deployment and its records of pulls.
// It returns fault.NotFound if there is no such repo. The collector later removes the blobs that no other repo holds.
//
// If the group has a trash, everything except the records of pulls can be restored. Otherwise the entries of the repo
// in the trash are removed, too.
func (s *Store) DeleteRepo(ctx context.Context, uid resource.UID) error {
	return s.write(ctx, func(t Tx) error {
		r, err := store.Lock(ctx, t.Tx, &repos, uid, s.Engine.ForDelete)
		if err != nil {
			return err
		}
		d, err := s.DeletionFrom(ctx, t, uid)
		if err != nil {
			return err
		}
		if err := t.uncountTags(ctx, uid); err != nil {
			return err
		}
		if _, err := t.dropPulls(ctx, `parent = $1`, store.Segment(uid)); err != nil {
			return err
		}
		if d.kept() {
			if err := t.trashRepo(ctx, r, d); err != nil {
				return err
			}
		}
		if err := t.removeRepo(ctx, r, d); err != nil {
			return err
		}
		if d.kept() {
			return t.DropCounters(ctx, uid, store.BytesCounter, store.TrashCounter)
		}
		return t.DropTrash(ctx, uid)
	})
}

// removeRepo removes a repo that the transaction has locked, with everything in it.
func (t Tx) removeRepo(ctx context.Context, r registry.Repo, d Deletion) error {
	for _, text := range []string{
		`DELETE FROM tags WHERE parent = $1`,
		`DELETE FROM tag_history WHERE repo = $1`,
		`DELETE FROM deployments WHERE repo = $1`,
		`DELETE FROM manifest_refs WHERE repo = $1`,
	} {
		if _, err := t.Exec(ctx, text, store.Segment(r.UID)); err != nil {
			return err
		}
	}
	if err := t.dropContent(ctx, r.UID, d); err != nil {
		return err
	}
	if err := t.ForgetImages(ctx, r.UID, ""); err != nil {
		return err
	}
	if _, err := t.Exec(ctx, `DELETE FROM repos WHERE seg = $1`, store.Segment(r.UID)); err != nil {
		return err
	}
	t.PathsChanged()
	return t.Removed(ctx, "repos", resource.RepoDeleted, r.UID, r.UID.Parent(), r)
}

// dropContent removes the manifests and blobs of a repo that is being deleted. It subtracts from the counters
// only the rows that it removes itself, because another transaction may remove some of them at the same time.
// Blobs that the trash needs stay stored and counted.
func (t Tx) dropContent(ctx context.Context, repo resource.UID, d Deletion) error {
	sizes, err := store.ReadColumn[int64](ctx, t.Rows, `DELETE FROM manifests WHERE repo = $1 RETURNING size`,
		store.Segment(repo))
	if err != nil {
		return err
	}
	blobs, err := store.ReadMap[string, int64](ctx, t.Rows, `DELETE FROM repo_blobs WHERE repo = $1
		RETURNING digest, (SELECT b.size FROM blobs AS b WHERE b.digest = repo_blobs.digest)`, store.Segment(repo))
	if err != nil {
		return err
	}
	var gone int64
	if d.kept() {
		if err := t.trashBlobs(ctx, repo, blobs); err != nil {
			return err
		}
	} else {
		for _, size := range sizes {
			gone += size
		}
	}
	for _, size := range blobs { // does not include the blobs that trashBlobs moved to the trash
		gone += size
	}
	return t.CountBytes(ctx, repo, -gone)
}

// uncountTags subtracts the tags of a repo that is being deleted from the counters of the groups above it.
func (t Tx) uncountTags(ctx context.Context, repo resource.UID) error {
	gone, err := store.ReadMap[resource.TagClass, int](ctx, t.Rows,
		`SELECT class, count(*) FROM tags WHERE parent = $1 GROUP BY class`, store.Segment(repo))
	if err != nil {
		return err
	}
	for class, n := range gone {
		if err := t.Count(ctx, store.TagCounter(class), repo.NewChild(), -n); err != nil {
			return err
		}
	}
	return nil
}

// Followers returns how many repos in reach follow source. It scans all repos in reach. An index is not worth its
// cost, because few repos follow another and the number is rarely requested.
func (s *Store) Followers(ctx context.Context, r store.Reach, source resource.UID) (total int64, _ error) {
	for _, root := range r.Under {
		var n int64
		// A UID contains no character that has a meaning in LIKE or JSON.
		err := s.Row(ctx, `SELECT count(*) FROM repos WHERE uid > $1 AND uid < $2 AND detail LIKE $3`,
			[]any{string(root) + "/", string(root) + "0", `%"source":"` + string(source) + `"%`}, &n)
		if err != nil {
			return 0, err
		}
		total += n
	}
	return total, nil
}

// RepoPath returns the address of a repo in the registry: the names of the groups above it and its own name, joined
// by slashes. It returns fault.NotFound if there is no such repo.
func (s *Store) RepoPath(ctx context.Context, uid resource.UID) (string, error) {
	r, err := s.Repo(ctx, uid)
	if err != nil {
		return "", err
	}
	names, err := s.GroupNames(ctx, uid.Ancestors())
	if err != nil {
		return "", err
	}
	return strings.Join(append(names, r.Name), "/"), nil
}

// RepoAt returns the repo at a path, or fault.NotFound. names are the names of the groups above the repo, root first,
// and then the name of the repo. The paths of repos are cached. So a caller who may not know that the repo exists must
// not get the time that RepoAt takes: see FindRepo.
func (s *Store) RepoAt(ctx context.Context, names []string) (resource.UID, error) {
	if uid, ok := s.CachedRepo(names); ok {
		return uid, nil
	}
	return s.UncachedRepo(ctx, names)
}

// CachedRepo returns the repo at a path if the cache has it.
func (s *Store) CachedRepo(names []string) (uid resource.UID, ok bool) {
	current := s.Current() // must be read before the lookup, because the cache may become outdated after it
	uid, ok, _ = s.repos.get(strings.Join(names, "/"))
	s.RepoLookups.Count(ok && current)
	return uid, ok && current
}

// UncachedRepo is RepoAt for callers who may not know that the repo exists. It runs the same statement whether the repo
// exists or not.
func (s *Store) UncachedRepo(ctx context.Context, names []string) (resource.UID, error) {
	repo, _, err := s.FindRepo(ctx, names)
	if err == nil && repo == "" {
		err = fault.Missing("repo", strings.Join(names, "/"))
	}
	return repo, err
}

// FindRepo returns the repo at a path, and the lowest group at a beginning of the path. Each is "" if there is none.
// FindRepo does not use the cache. It runs one statement, which does not depend on what exists.
func (s *Store) FindRepo(ctx context.Context, names []string) (repo, group resource.UID, _ error) {
	path := strings.Join(names, "/")
	_, _, cleared := s.repos.get(path)
	var selects []string
	var args []any
	if addressable(names) {
		var named string
		args, named = repoNamed(names)
		selects = append(selects, `SELECT r.uid FROM repos AS r WHERE `+named)
	}
	for n := min(len(names)-1, store.MaxNames); n > 0; n-- {
		groupArgs, segment := store.GroupNamed(names[:n]) // they are the first arguments of all selects
		if args == nil {
			args = groupArgs
		}
		selects = append(selects, `SELECT g.uid FROM `+store.GroupRows+` AS g WHERE g.seg = `+segment)
	}
	if len(selects) == 0 {
		return "", "", nil
	}
	found, err := store.ReadColumn[resource.UID](ctx, s.Rows, strings.Join(selects, ` UNION ALL `), args...)
	for _, uid := range found {
		if uid.Depth() == len(names) {
			repo = uid
		} else if uid.Depth() > group.Depth() {
			group = uid
		}
	}
	if repo != "" && !store.InTransaction(ctx) { // others must not find a repo that is not committed
		s.repos.put(path, repo, cleared)
	}
	return repo, group, err
}

// RepoIn returns the repo with a name in a group, or fault.NotFound. The group must be given by its complete UID.
func (s *Store) RepoIn(ctx context.Context, group resource.UID, name string) (uid resource.UID, _ error) {
	err := s.Row(ctx, `SELECT uid FROM repos WHERE parent = $1 AND name = $2`, []any{store.Segment(group), name}, &uid)
	if err == nil && uid.Parent() != group {
		err = sql.ErrNoRows
	}
	return uid, store.Missing(err, "repo", resource.UID(name))
}

// addressable reports whether a repo can have these names.
func addressable(names []string) bool { return len(names) >= 2 && len(names) <= store.MaxNames }

// repoNamed returns the SQL condition that r is the repo with these names, and the arguments of the condition.
func repoNamed(names []string) (args []any, text string) {
	args, group := store.GroupNamed(names[:len(names)-1])
	args = append(args, names[len(names)-1])
	return args, `r.parent = ` + group + ` AND r.name = $` + strconv.Itoa(len(args))
}

// GroupAt returns the group with these names, root first, or fault.NotFound.
func (s *Store) GroupAt(ctx context.Context, names []string) (uid resource.UID, _ error) {
	if len(names) == 0 || len(names) > store.MaxNames {
		return "", fault.Missing("group", strings.Join(names, "/"))
	}
	args, group := store.GroupNamed(names)
	err := s.Row(ctx, `SELECT uid FROM `+store.GroupRows+` AS groups WHERE seg = `+group, args, &uid)
	return uid, store.Missing(err, "group", resource.UID(strings.Join(names, "/")))
}

// A RepoRef names the repo of a push, which may not exist yet.
type RepoRef struct {
	Group  resource.UID
	Name   string
	Create bool // the push may create the repo
}

// ensureUnfollowing is ensureRepo for a push that adds tags. It returns fault.FailedPrecondition if the repo follows
// another repo.
func (t Tx) ensureUnfollowing(ctx context.Context, ref RepoRef) (resource.UID, error) {
	uid, follower, err := t.findRepo(ctx, ref)
	if err == nil && follower {
		err = follows()
	}
	return t.createMissing(ctx, ref, uid, err)
}

// ensureRepo returns the repo of a push and holds it until the commit. If the repo does not exist, ensureRepo creates
// it if ref.Create is set, and otherwise returns fault.NotFound.
func (t Tx) ensureRepo(ctx context.Context, ref RepoRef) (resource.UID, error) {
	uid, _, err := t.findRepo(ctx, ref)
	return t.createMissing(ctx, ref, uid, err)
}

// findRepo returns the repo of a push, and reports whether it follows another repo. It holds the repo until the
// commit.
func (t Tx) findRepo(ctx context.Context, ref RepoRef) (uid resource.UID, follower bool, err error) {
	text := `SELECT t.uid, ` + isFollower + ` FROM repos AS t WHERE t.parent = $1 AND t.name = $2`
	err = t.Row(ctx, text+t.DB.Engine.ForShare, []any{store.Segment(ref.Group), ref.Name}, &uid, &follower)
	return uid, follower, store.Missing(err, "repo", resource.UID(ref.Name))
}

// createMissing creates the repo of a push if findRepo returned fault.NotFound and ref.Create is set. Otherwise it
// returns uid and err.
func (t Tx) createMissing(ctx context.Context, ref RepoRef, uid resource.UID, err error) (resource.UID, error) {
	if !ref.Create || !errors.Is(err, fault.NotFound) {
		return uid, err
	}
	if err := t.RequireGroup(ctx, ref.Group); err != nil {
		return "", err
	}
	r := registry.Repo{UID: ref.Group.NewChild(), Name: ref.Name, CreateTime: t.DB.Time()}
	r.UpdateTime = r.CreateTime
	err = store.Insert(ctx, t.Tx, &repos, r)
	if errors.Is(err, fault.AlreadyExists) { // a concurrent push created the repo
		r.UID, _, err = t.findRepo(ctx, ref)
	}
	return r.UID, err
}

// ChangeSync applies change to the stored sync settings of a repo, and writes them if change returns true. It adds no
// event and keeps the version of the repo, because no caller has changed the repo.
func (t Tx) ChangeSync(ctx context.Context, repo resource.UID, change func(*registry.Repo) bool) error {
	var detail string
	if err := t.Row(ctx, `SELECT detail FROM repos WHERE uid = $1`, []any{string(repo)}, &detail); err != nil {
		return err
	}
	var r registry.Repo
	if err := json.Unmarshal([]byte(detail), &r); err != nil {
		return err
	}
	if !change(&r) {
		return nil
	}
	detail, err := store.Encode(r)
	if err != nil {
		return err
	}
	_, err = t.Exec(ctx, `UPDATE repos SET detail = $2 WHERE uid = $1`, string(repo), detail)
	return err
}
