package registrydb

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/registry"
	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/internal/store/engine"
	"github.com/holdfast-dev/holdfast/internal/store/readbatch"
)

// A MissingError lists the blobs and manifests that a manifest refers to and that its repo lacks.
type MissingError struct{ Needs []registry.Need }

// Error implements error.
func (e *MissingError) Error() string {
	var digests []string
	for _, n := range e.Needs {
		digests = append(digests, n.Digest)
	}
	return "the manifest refers to unknown content: " + strings.Join(digests, ", ")
}

// addManifest stores m with its references, unless the repo already has m.
func (t Tx) addManifest(ctx context.Context, repo resource.UID, m registry.Manifest) error {
	added, err := t.insertManifest(ctx, repo, m)
	if err != nil || !added {
		return err
	}
	if err := t.noteManifest(ctx, repo, m); err != nil {
		return err
	}
	_, err = t.addRefs(ctx, repo, m)
	return err
}

// noteManifest counts the bytes of a new manifest and queues the inspections that it makes necessary.
func (t Tx) noteManifest(ctx context.Context, repo resource.UID, m registry.Manifest) error {
	if err := t.CountBytes(ctx, repo, int64(len(m.Body))); err != nil {
		return err
	}
	if err := t.queueImage(ctx, repo, m); err != nil {
		return err
	}
	return t.queueSBOMs(ctx, repo, append(m.About, m.Subject)...)
}

// refTo returns the row of manifest_refs for something that a manifest needs.
func refTo(repo resource.UID, manifest string, n registry.Need) []any {
	if n.Manifest {
		return []any{store.Segment(repo), manifest, nil, n.Digest}
	}
	return []any{store.Segment(repo), manifest, n.Digest, nil}
}

func (t Tx) insertRefs(ctx context.Context, refs [][]any) error {
	return t.InsertRows(ctx, `INSERT INTO manifest_refs (repo, digest, blob, child)`, refs, "")
}

// insertManifest adds the row of a manifest. If the repo already has the manifest, it holds that row until the commit
// and reports false. It tries again if the row is deleted between the two statements.
func (t Tx) insertManifest(ctx context.Context, repo resource.UID, m registry.Manifest) (added bool, err error) {
	for range 3 {
		d := t.manifestInsertion(ctx, repo, m)
		n, err := t.Exec(ctx, d.Text, d.Args...)
		if err != nil || n == 1 {
			return err == nil, err
		}
		if err := t.holdManifest(ctx, repo, m.Digest); !errors.Is(err, fault.NotFound) {
			return false, err
		}
	}
	return false, fault.New(fault.Aborted, "Aborted: other requests keep deleting the manifest; try again")
}

// manifestInsertion returns the statement that adds the row of a manifest. The statement changes no row if the repo
// already has the manifest.
func (t Tx) manifestInsertion(ctx context.Context, repo resource.UID, m registry.Manifest) engine.Statement {
	return engine.Statement{
		Text: `INSERT INTO manifests
				(repo, digest, media_type, size, subject, artifact_type, annotations, push_ms, body, actor)
			VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10) ON CONFLICT (repo, digest) DO NOTHING`,
		Args: []any{
			store.Segment(repo), m.Digest, m.MediaType, len(m.Body), m.Subject, m.ArtifactType, m.Annotations,
			store.MS(t.DB.Time()), m.Body, string(resource.ActorFrom(ctx).Subject),
		},
	}
}

// holdManifest holds an existing manifest until the commit, or returns fault.NotFound.
func (t Tx) holdManifest(ctx context.Context, repo resource.UID, digest string) error {
	var one int
	err := t.Row(ctx, `SELECT 1 FROM manifests AS t WHERE t.repo = $1 AND t.digest = $2`+t.DB.Engine.ForShare,
		[]any{store.Segment(repo), digest}, &one)
	return store.Missing(err, "manifest", resource.UID(digest))
}

// addRefs records which blobs and manifests of its repo a manifest needs, and holds them until the commit. It returns
// a *MissingError if the repo lacks one of them. Missing optional needs are no error, and are returned as absent. It
// looks up all layers of an image together.
func (t Tx) addRefs(ctx context.Context, repo resource.UID, m registry.Manifest) (absent []registry.Need, _ error) {
	var blobs, children []string
	for _, n := range m.Needs {
		if n.Manifest {
			children = append(children, n.Digest)
		} else {
			blobs = append(blobs, n.Digest)
		}
	}
	heldBlobs, err := heldDigests(ctx, t.Rows, "repo_blobs", repo, blobs, t.DB.Engine.ForShare)
	if err != nil {
		return nil, err
	}
	heldChildren, err := heldDigests(ctx, t.Rows, "manifests", repo, children, t.DB.Engine.ForShare)
	if err != nil {
		return nil, err
	}
	var lacking []registry.Need
	var refs [][]any
	for _, n := range m.Needs {
		held := heldBlobs[n.Digest]
		if n.Manifest {
			held = heldChildren[n.Digest]
		}
		switch {
		case held:
			refs = append(refs, refTo(repo, m.Digest, n))
		case n.Optional:
			absent = append(absent, n)
		default:
			lacking = append(lacking, n)
		}
	}
	if lacking != nil {
		return nil, &MissingError{lacking}
	}
	return absent, t.insertRefs(ctx, refs)
}

// heldDigests returns which of the digests a repo has in a table. end is appended to the SQL statement.
func heldDigests(
	ctx context.Context, read store.Reader, table string, repo resource.UID, digests []string, end string,
) (map[string]bool, error) {
	held := map[string]bool{}
	for chunk := range slices.Chunk(digests, maxHeld) {
		text, args := selectHeld(table, repo, chunk)
		found, err := store.ReadColumn[string](ctx, read, text+end, args...)
		if err != nil {
			return nil, err
		}
		for _, digest := range found {
			held[digest] = true
		}
	}
	return held, nil
}

// maxHeld is the number of digests that one statement looks up.
const maxHeld = 64

// selectHeld returns a statement that selects which of the digests a repo has in a table. Each digest is a parameter,
// so that both engines look each one up in the primary key. The last digest is repeated until the number of
// parameters is a power of two, so that there are few different statements.
func selectHeld(table string, repo resource.UID, digests []string) (text string, args []any) {
	args = []any{store.Segment(repo)}
	var params []string
	for n := 1; len(params) < len(digests) || len(params) < n; {
		args = append(args, digests[min(len(params), len(digests)-1)])
		params = append(params, `$`+strconv.Itoa(len(args)))
		if n < len(params) {
			n *= 2
		}
	}
	return `SELECT t.digest FROM ` + table + ` AS t WHERE t.repo = $1 AND t.digest IN (` + strings.Join(params,
		`, `) + `)`, args
}

// manifestOf returns the statement that selects the manifest that a reference names in a repo. A reference that
// contains a colon is a digest; any other is a tag. The body is selected only if whole is set.
func manifestOf(repo resource.UID, reference string, whole bool) (text string, args []any) {
	columns, digest := `m.digest, m.media_type, m.artifact_type, m.size, m.push_ms`, `$2`
	if whole {
		columns += `, m.subject, m.body`
	}
	if !strings.Contains(reference, ":") {
		digest = `(SELECT digest FROM tags WHERE parent = $1 AND name = $2)`
	}
	return `SELECT ` + columns + ` FROM manifests AS m WHERE m.repo = $1
		AND m.digest = ` + digest, []any{store.Segment(repo), reference}
}

// Manifest returns the manifest that a digest or tag names in a repo, or fault.NotFound.
func (s *Store) Manifest(ctx context.Context, repo resource.UID, reference string) (registry.Manifest, error) {
	return s.manifest(ctx, repo, reference, true)
}

// StatManifest is Manifest without the body.
func (s *Store) StatManifest(ctx context.Context, repo resource.UID, reference string) (registry.Manifest, error) {
	return s.manifest(ctx, repo, reference, false)
}

// A manifestQuery asks for the manifest that a digest or tag names in a repo.
type manifestQuery struct {
	repo      resource.UID
	reference string
	whole     bool // whether to read the body, too
}

func (s *Store) manifest(
	ctx context.Context, repo resource.UID, reference string, whole bool,
) (registry.Manifest, error) {
	q := manifestQuery{repo, reference, whole}
	if !utf8.ValidString(reference) || strings.ContainsRune(reference, 0) {
		return s.readManifest(ctx, q) // outside of a batch, because PostgreSQL would refuse the whole batch
	}
	m, err := s.manifests.Read(ctx, q)
	if err == nil && whole && m.Body == nil { // the body is larger than maxBatchedBody
		return s.readManifest(ctx, q)
	}
	return m, err
}

// readManifest answers one query with its own statement.
func (s *Store) readManifest(ctx context.Context, q manifestQuery) (m registry.Manifest, _ error) {
	var pushed int64
	dest := []any{&m.Digest, &m.MediaType, &m.ArtifactType, &m.Size, &pushed}
	if q.whole {
		dest = append(dest, &m.Subject, &m.Body)
	}
	text, args := manifestOf(q.repo, q.reference, q.whole)
	err := s.Row(ctx, text, args, dest...)
	m.PushTime = store.FromMS(pushed)
	return m, store.Missing(err, "manifest", resource.UID(q.reference))
}

// maxBatchedBody is the largest manifest body, in bytes, that a batched read returns, so that one large manifest does
// not delay the others.
const maxBatchedBody = 64 << 10

// selectManifests selects the manifests of a batch of queries.
const selectManifests = `
	SELECT q.i - 1, m.digest, m.media_type, m.artifact_type, m.size, m.push_ms, m.subject,
		CASE WHEN q.whole AND m.size <= $4 THEN m.body END
	FROM unnest($1::bigint[], $2::text[], $3::boolean[]) WITH ORDINALITY AS q (repo, reference, whole, i)
	CROSS JOIN LATERAL (SELECT * FROM manifests AS m WHERE m.repo = q.repo AND m.digest = CASE
		WHEN strpos(q.reference, ':') > 0 THEN q.reference
		ELSE (SELECT t.digest FROM tags AS t WHERE t.parent = q.repo AND t.name = q.reference) END OFFSET 0) AS m`

// readManifests answers several queries on PostgreSQL, without the bodies that are larger than maxBatchedBody.
func (s *Store) readManifests(
	ctx context.Context, queries []manifestQuery,
) ([]readbatch.Result[registry.Manifest], error) {
	repos, references, whole := make([]int64, len(queries)), make([]string, len(queries)), make([]bool, len(queries))
	results := make([]readbatch.Result[registry.Manifest], len(queries))
	for i, q := range queries {
		repos[i], references[i], whole[i] = store.Segment(q.repo), q.reference, q.whole
		results[i].Err = store.Missing(sql.ErrNoRows, "manifest", resource.UID(q.reference))
	}
	err := s.Rows(ctx, selectManifests,
		[]any{repos, references, whole, maxBatchedBody}, func(row store.Scanner) (bool, error) {
			var i, pushed int64
			var m registry.Manifest
			err := row.Scan(&i, &m.Digest, &m.MediaType, &m.ArtifactType, &m.Size, &pushed, &m.Subject, &m.Body)
			m.PushTime = store.FromMS(pushed)
			if !queries[i].whole {
				m.Subject = ""
			}
			results[i] = readbatch.Result[registry.Manifest]{Value: m, Err: err}
			return false, err
		})
	return results, err
}

// maxUntagged is the number of tags of a deleted manifest that one transaction removes. A manifest can have any
// number of tags, and on SQLite all other writes wait for the transaction.
const maxUntagged = 200

// DeleteManifest removes a manifest and its tags. It returns fault.NotFound if there is no such manifest, and
// fault.FailedPrecondition if an index of the repo lists it, or if frozen forbids the deletion of one of its tags.
//
// The tags are removed in transactions of maxUntagged each. If one fails, some tags are gone and the manifest
// remains.
func (s *Store) DeleteManifest(ctx context.Context, repo resource.UID, digest string, frozen func(string) bool) error {
	if err := s.mayDelete(ctx, repo, digest, frozen); err != nil {
		return err
	}
	for {
		var left bool
		err := s.write(ctx, func(t Tx) (err error) {
			d, err := s.DeletionFrom(ctx, t, repo)
			if err != nil {
				return notIn(err, "manifest", digest)
			}
			d.Together = true
			left, err = t.DeleteManifest(ctx, repo, digest, frozen, d)
			return err
		})
		if err != nil || !left || resource.IsDryRun(ctx) { // in a dry run nothing is removed, so the loop would never end
			return err
		}
	}
}

// mayDelete returns an error if a manifest cannot be deleted. It is called before the first tag is removed.
func (s *Store) mayDelete(ctx context.Context, repo resource.UID, digest string, frozen func(string) bool) error {
	names, err := store.ReadColumn[string](ctx, s.Rows, `SELECT name FROM tags WHERE digest = $1 AND parent = $2`,
		digest, store.Segment(repo))
	if err != nil {
		return err
	}
	for _, name := range names {
		if frozen != nil && frozen(name) {
			return immutable(name)
		}
	}
	var n int
	if err := s.Row(ctx, `SELECT count(*) FROM manifest_refs WHERE repo = $1 AND child = $2`,
		[]any{store.Segment(repo), digest}, &n); err != nil {
		return err
	}
	if n > 0 {
		return fault.InUse("manifest", "an index")
	}
	return nil
}

// DeleteManifest removes up to maxUntagged tags of a manifest. If the manifest then has no more tags, it removes the
// manifest. It reports whether the caller must call it again to remove the rest. The errors are the same as for
// Store.DeleteManifest.
func (t Tx) DeleteManifest(
	ctx context.Context, repo resource.UID, digest string, frozen func(string) bool, d Deletion,
) (left bool, _ error) {
	var size, parents int64
	err := t.Row(ctx, `SELECT t.size FROM manifests AS t WHERE t.repo = $1 AND t.digest = $2`+t.DB.Engine.ForDelete,
		[]any{store.Segment(repo), digest}, &size)
	if err != nil {
		return false, store.Missing(err, "manifest", resource.UID(digest))
	}
	named, err := tags.All(ctx, t.Rows,
		` WHERE t.digest = $1 AND t.parent = $2 ORDER BY t.uid LIMIT $3`+t.DB.Engine.ForDelete,
		digest, store.Segment(repo), maxUntagged+1)
	if err != nil {
		return false, err
	}
	left = len(named) > maxUntagged
	for _, g := range named[:min(len(named), maxUntagged)] {
		if err := t.DeleteTag(ctx, g, frozen, d); err != nil {
			return false, err
		}
	}
	if left {
		return true, nil
	}
	if err := t.Row(ctx, `SELECT count(*) FROM manifest_refs WHERE repo = $1 AND child = $2`,
		[]any{store.Segment(repo), digest}, &parents); err != nil {
		return false, err
	}
	if parents > 0 {
		return false, fault.InUse("manifest", "an index")
	}
	return false, t.removeManifest(ctx, repo, digest, size, d)
}

// removeManifest removes a manifest that the transaction has locked and that nothing refers to.
func (t Tx) removeManifest(ctx context.Context, repo resource.UID, digest string, size int64, d Deletion) error {
	if err := t.queueBereft(ctx, repo, digest); err != nil {
		return err
	}
	if d.kept() {
		if err := t.trashManifest(ctx, repo, digest, d); err != nil {
			return err
		}
		size = 0 // the bytes stay counted, because they move to the trash
	}
	for _, text := range []string{
		`DELETE FROM manifest_refs WHERE repo = $1 AND digest = $2`,
		`DELETE FROM manifests WHERE repo = $1 AND digest = $2`,
	} {
		if _, err := t.Exec(ctx, text, store.Segment(repo), digest); err != nil {
			return err
		}
	}
	if err := t.ForgetImages(ctx, repo, digest); err != nil {
		return err
	}
	return t.CountBytes(ctx, repo, -size)
}

// ManifestsAbout returns up to n manifests that have the given subject and at most size bytes, with their bodies,
// newest first.
func (s *Store) ManifestsAbout(
	ctx context.Context, repo resource.UID, subject string, size, n int,
) ([]registry.Manifest, error) {
	return store.ReadAll(ctx, s.Rows, func(row store.Scanner) (registry.Manifest, error) {
		m := registry.Manifest{Subject: subject}
		var pushed int64
		err := row.Scan(&m.Digest, &m.MediaType, &m.Size, &m.ArtifactType, &pushed, &m.Body)
		m.PushTime = store.FromMS(pushed)
		return m, err
	}, `SELECT digest, media_type, size, artifact_type, push_ms, body FROM manifests
		WHERE repo = $1 AND subject = $2 AND subject <> '' AND size <= $3
		ORDER BY push_ms DESC, digest LIMIT $4`, store.Segment(repo), subject, size, n)
}

// ManifestDigests returns up to n digests of manifests in a repo that have no subject, in byte order, starting after
// last.
func (s *Store) ManifestDigests(ctx context.Context, repo resource.UID, last string, n int) ([]string, error) {
	digests, err := store.ReadColumn[string](ctx, s.Rows,
		`SELECT digest FROM manifests WHERE repo = $1 AND digest > $2 AND subject = '' ORDER BY digest LIMIT $3`,
		store.Segment(repo), last, n)
	return append([]string{}, digests...), err
}

// CountManifests returns the number of distinct manifests in a repo, or in all repos below a group.
func (s *Store) CountManifests(ctx context.Context, place resource.UID) (n int64, _ error) {
	err := s.Row(ctx, `
		SELECT count(DISTINCT digest) FROM manifests
		WHERE repo IN (SELECT seg FROM repos WHERE uid = $1 OR uid > $2 AND uid < $3)`,
		[]any{string(place), string(place) + "/", string(place) + "0"}, &n)
	return n, err
}

// ReposWith returns up to n repos in reach that have a manifest, in the order of their UIDs.
func (s *Store) ReposWith(ctx context.Context, r store.Reach, digest string, n int) (uids []resource.UID, _ error) {
	for _, root := range r.Under {
		found, err := store.ReadColumn[resource.UID](ctx, s.Rows, `
			SELECT uid FROM repos WHERE seg IN (SELECT repo FROM manifests WHERE digest = $1)
			AND (uid = $2 OR uid > $3 AND uid < $4) ORDER BY uid LIMIT $5`,
			digest, string(root), string(root)+"/", string(root)+"0", n-len(uids))
		uids = append(uids, found...)
		if err != nil || len(uids) == n {
			return uids, err
		}
	}
	return uids, nil
}

// Unattached returns which of the digests are manifests of a repo that have no subject.
func (s *Store) Unattached(ctx context.Context, repo resource.UID, digests []string) (map[string]bool, error) {
	return heldDigests(ctx, s.Rows, "manifests", repo, digests, ` AND t.subject = ''`)
}

// Referrers returns up to n manifests that have the given subject, in the order of their digests, starting after
// last. Unless artifactType is "", it returns only manifests of that type.
func (s *Store) Referrers(
	ctx context.Context, repo resource.UID, subject, artifactType, last string, n int,
) ([]registry.Manifest, error) {
	return store.ReadAll(ctx, s.Rows, func(row store.Scanner) (registry.Manifest, error) {
		m := registry.Manifest{Subject: subject}
		err := row.Scan(&m.Digest, &m.MediaType, &m.Size, &m.ArtifactType, &m.Annotations)
		return m, err
	}, `SELECT digest, media_type, size, artifact_type, annotations FROM manifests
		WHERE repo = $1 AND subject = $2 AND subject <> '' AND digest > $3 AND ($4 = '' OR artifact_type = $4)
		ORDER BY digest LIMIT $5`, store.Segment(repo), subject, last, artifactType, n)
}

// HoldManifest locks a manifest of a repo, so that it is not deleted before the commit. It reports whether there is
// such a manifest.
func (t Tx) HoldManifest(ctx context.Context, repo resource.UID, digest string) (bool, error) {
	rows, err := store.ReadColumn[int](ctx, t.Rows,
		`SELECT 1 FROM manifests AS t WHERE t.repo = $1 AND t.digest = $2`+t.DB.Engine.ForShare, store.Segment(repo), digest)
	return len(rows) > 0, err
}
