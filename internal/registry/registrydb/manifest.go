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
)

// A MissingError lists what a manifest refers to and its repo lacks.
type MissingError struct{ Needs []registry.Need }

// Error implements error.
func (e *MissingError) Error() string {
	var digests []string
	for _, n := range e.Needs {
		digests = append(digests, n.Digest)
	}
	return "the manifest refers to unknown content: " + strings.Join(digests, ", ")
}

// addManifest stores m unless it is there.
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

// noteManifest does what follows from a new manifest.
func (t Tx) noteManifest(ctx context.Context, repo resource.UID, m registry.Manifest) error {
	if err := t.CountBytes(ctx, repo, int64(len(m.Body))); err != nil {
		return err
	}
	if err := t.queueImage(ctx, repo, m); err != nil {
		return err
	}
	return t.queueSBOMs(ctx, repo, append(m.About, m.Subject)...)
}

// refTo returns the row that says that a manifest needs something.
func refTo(repo resource.UID, manifest string, n registry.Need) []any {
	if n.Manifest {
		return []any{store.Segment(repo), manifest, nil, n.Digest}
	}
	return []any{store.Segment(repo), manifest, n.Digest, nil}
}

func (t Tx) insertRefs(ctx context.Context, refs [][]any) error {
	return t.InsertRows(ctx, `INSERT INTO manifest_refs (repo, digest, blob, child)`, refs, "")
}

// insertManifest adds the row of a manifest. It reports false if it is there, and holds it then. Somebody may delete it
// between the two.
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
	return false, fault.New(fault.Aborted, "Aborted: the manifest is deleted again and again; try again")
}

// manifestInsertion is the statement that adds the row of a manifest. It touches no row if it is there.
func (t Tx) manifestInsertion(ctx context.Context, repo resource.UID, m registry.Manifest) store.Statement {
	return store.Statement{
		Text: `INSERT INTO manifests (repo, digest, media_type, size, subject, artifact_type, annotations, push_ms, body, actor)
			VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10) ON CONFLICT (repo, digest) DO NOTHING`,
		Args: []any{
			store.Segment(repo), m.Digest, m.MediaType, len(m.Body), m.Subject, m.ArtifactType, m.Annotations,
			store.MS(t.DB.Time()), m.Body, string(resource.ActorFrom(ctx).Subject),
		},
	}
}

// holdManifest holds a manifest that existed before this push until the commit.
func (t Tx) holdManifest(ctx context.Context, repo resource.UID, digest string) error {
	var one int
	err := t.Row(ctx, `SELECT 1 FROM manifests AS t WHERE t.repo = $1 AND t.digest = $2`+t.DB.Engine.ForShare,
		[]any{store.Segment(repo), digest}, &one)
	return store.Missing(err, "manifest", resource.UID(digest))
}

// addRefs records what a manifest needs of its repo, and holds it until the commit.
// It returns a *MissingError if the repo does not have all of it, and otherwise what it
// lacks that is optional. All layers of an image are looked up at once.
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

// heldDigests returns which of the digests a repo has in a table. end ends the
// statement.
func heldDigests(
	ctx context.Context, read store.Reader, table string, repo resource.UID, digests []string, end string,
) (map[string]bool, error) {
	held := map[string]bool{}
	for some := range slices.Chunk(digests, maxHeld) {
		text, args := selectHeld(table, repo, some)
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

// maxHeld is how many digests one statement looks up.
const maxHeld = 64

// selectHeld selects those of the digests that a repo has in a table. Each is a
// parameter, so that either database seeks the key of the table for each. Their
// number is rounded up to a power of two by repeating the last one, so that there
// are few different statements.
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

// manifestOf selects what a reference names in a repo, a digest or, where it has
// no colon, a tag; unless whole, without the body.
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

// Manifest returns what a digest or tag names in a repo, or fault.NotFound.
func (s *Store) Manifest(ctx context.Context, repo resource.UID, reference string) (registry.Manifest, error) {
	return s.manifest(ctx, repo, reference, true)
}

// StatManifest is Manifest without the body.
func (s *Store) StatManifest(ctx context.Context, repo resource.UID, reference string) (registry.Manifest, error) {
	return s.manifest(ctx, repo, reference, false)
}

// A manifestQuestion is what a digest or tag names in a repo.
type manifestQuestion struct {
	repo      resource.UID
	reference string
	whole     bool // with the body
}

func (s *Store) manifest(
	ctx context.Context, repo resource.UID, reference string, whole bool,
) (registry.Manifest, error) {
	q := manifestQuestion{repo, reference, whole}
	if !utf8.ValidString(reference) || strings.ContainsRune(reference, 0) { // which PostgreSQL refuses, and all that is asked with it
		return s.readManifest(ctx, q)
	}
	m, err := s.manifests.Read(ctx, q)
	if err == nil && whole && m.Body == nil { // it is too long to be read with others
		return s.readManifest(ctx, q)
	}
	return m, err
}

// readManifest answers one question.
func (s *Store) readManifest(ctx context.Context, q manifestQuestion) (m registry.Manifest, _ error) {
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

// maxGathered is how long the body of a manifest may be that is read together with others, in bytes. Nobody is to wait for a
// long one of somebody else.
const maxGathered = 64 << 10

// selectManifests selects what references name in repos.
const selectManifests = `
	SELECT q.i - 1, m.digest, m.media_type, m.artifact_type, m.size, m.push_ms, m.subject,
		CASE WHEN q.whole AND m.size <= $4 THEN m.body END
	FROM unnest($1::bigint[], $2::text[], $3::boolean[]) WITH ORDINALITY AS q (repo, reference, whole, i)
	CROSS JOIN LATERAL (SELECT * FROM manifests AS m WHERE m.repo = q.repo AND m.digest = CASE
		WHEN strpos(q.reference, ':') > 0 THEN q.reference
		ELSE (SELECT t.digest FROM tags AS t WHERE t.parent = q.repo AND t.name = q.reference) END OFFSET 0) AS m`

// readManifests answers several questions, without the bodies that are too long. It is for PostgreSQL.
func (s *Store) readManifests(ctx context.Context, asked []manifestQuestion) ([]store.BatchResult[registry.Manifest], error) {
	repos, references, whole := make([]int64, len(asked)), make([]string, len(asked)), make([]bool, len(asked))
	all := make([]store.BatchResult[registry.Manifest], len(asked))
	for i, q := range asked {
		repos[i], references[i], whole[i] = store.Segment(q.repo), q.reference, q.whole
		all[i].Err = store.Missing(sql.ErrNoRows, "manifest", resource.UID(q.reference))
	}
	err := s.Rows(ctx, selectManifests,
		[]any{repos, references, whole, maxGathered}, func(row store.Scanner) (bool, error) {
			var i, pushed int64
			var m registry.Manifest
			err := row.Scan(&i, &m.Digest, &m.MediaType, &m.ArtifactType, &m.Size, &pushed, &m.Subject, &m.Body)
			m.PushTime = store.FromMS(pushed)
			if !asked[i].whole {
				m.Subject = ""
			}
			all[i] = store.BatchResult[registry.Manifest]{Value: m, Err: err}
			return false, err
		})
	return all, err
}

// ManifestAt returns the repo with these names, root first, and what a digest or
// tag names in it; unless whole, without the body. It returns fault.NotFound if
// there is no such repo, which is then "", or no such manifest.
//
// It is what a pull needs. The paths of repos are cached, so that it takes one
// query.
func (s *Store) ManifestAt(
	ctx context.Context, names []string, reference string, whole bool,
) (repo resource.UID, m registry.Manifest, err error) {
	if repo, err = s.RepoAt(ctx, names); err == nil {
		m, err = s.manifest(ctx, repo, reference, whole)
	}
	return repo, m, err
}

// maxUntagged is how many tags one transaction takes from a manifest that goes. A
// manifest can have any number of them, and on SQLite everybody's writes wait for
// a transaction to end.
const maxUntagged = 200

// DeleteManifest removes a manifest and its tags. It returns fault.NotFound if
// it is not there, and fault.FailedPrecondition while an index of the repo
// lists it, or if it has a tag that frozen keeps.
//
// A manifest with more tags than maxUntagged loses them in several transactions:
// if it fails in between, some of the tags are gone, and the manifest is there.
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
		if err != nil || !left || resource.IsDryRun(ctx) { // a dry run would find the same tags again
			return err
		}
	}
}

// mayDelete returns why a manifest cannot be deleted, before any of its tags is.
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

// DeleteManifest removes tags of a manifest and, once it has no others, the
// manifest. It reports whether something is left.
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

// removeManifest removes a manifest that is locked and that nothing refers to.
func (t Tx) removeManifest(ctx context.Context, repo resource.UID, digest string, size int64, d Deletion) error {
	if err := t.queueBereft(ctx, repo, digest); err != nil {
		return err
	}
	if d.kept() {
		if err := t.trashManifest(ctx, repo, digest, d); err != nil {
			return err
		}
		size = 0 // it is stored as before
	}
	for _, text := range []string{`DELETE FROM manifest_refs WHERE repo = $1 AND digest = $2`, `DELETE FROM manifests
		WHERE repo = $1 AND digest = $2`} {
		if _, err := t.Exec(ctx, text, store.Segment(repo), digest); err != nil {
			return err
		}
	}
	if err := t.ForgetImages(ctx, repo, digest); err != nil {
		return err
	}
	return t.CountBytes(ctx, repo, -size)
}

// ManifestsAbout returns up to n manifests of at most size bytes whose subject is a
// digest, with their bodies, newest first.
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

// ManifestDigests returns up to n digests of the manifests of a repo after last,
// in the order of their bytes: those that are about no other.
func (s *Store) ManifestDigests(ctx context.Context, repo resource.UID, last string, n int) ([]string, error) {
	all, err := store.ReadColumn[string](ctx, s.Rows,
		`SELECT digest FROM manifests WHERE repo = $1 AND digest > $2 AND subject = '' ORDER BY digest LIMIT $3`,
		store.Segment(repo), last, n)
	return append([]string{}, all...), err
}

// CountManifests returns how many different manifests there are in a repo, or in
// the repos below a group.
func (s *Store) CountManifests(ctx context.Context, place resource.UID) (n int64, _ error) {
	err := s.Row(ctx, `
		SELECT count(DISTINCT digest) FROM manifests
		WHERE repo IN (SELECT seg FROM repos WHERE uid = $1 OR uid > $2 AND uid < $3)`,
		[]any{string(place), string(place) + "/", string(place) + "0"}, &n)
	return n, err
}

// ReposWith returns up to n of the repos in reach that have a manifest, in the
// order of their uids.
func (s *Store) ReposWith(ctx context.Context, r store.Reach, digest string, n int) (all []resource.UID, _ error) {
	for _, root := range r.Under {
		some, err := store.ReadColumn[resource.UID](ctx, s.Rows, `
			SELECT uid FROM repos WHERE seg IN (SELECT repo FROM manifests WHERE digest = $1) AND (uid = $2 OR uid > $3
			AND uid < $4)
			ORDER BY uid LIMIT $5`, digest, string(root), string(root)+"/", string(root)+"0", n-len(all))
		all = append(all, some...)
		if err != nil || len(all) == n {
			return all, err
		}
	}
	return all, nil
}

// Unattached returns those of the digests that are manifests of a repo and name no
// subject.
func (s *Store) Unattached(ctx context.Context, repo resource.UID, digests []string) (map[string]bool, error) {
	return heldDigests(ctx, s.Rows, "manifests", repo, digests, ` AND t.subject = ''`)
}

// Referrers returns up to n manifests about subject, by digest after last, and
// of the artifact type unless that is "".
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
