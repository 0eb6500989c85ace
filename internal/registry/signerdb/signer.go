package signerdb

import (
	"context"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/page"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/registry"
	"github.com/holdfast-dev/holdfast/internal/registry/registrydb"
	"github.com/holdfast-dev/holdfast/internal/store"
)

var signers = store.Kind[registry.Signer]{
	Table: "signers", Label: "signer", Created: resource.SignerCreated, Deleted: resource.SignerDeleted,
	Columns: func(s *registry.Signer) []store.Column {
		return []store.Column{
			store.JSON("detail", s), // fields that have a column are read from the column
			store.Key(&s.UID),
			store.Text("name", &s.Name).Order("name"),
			store.Time("create_ms", &s.CreateTime).Order("create_time").Fixed(),
			store.Time("update_ms", &s.UpdateTime),
		}
	},
}

// SignerList is the list of signers, with its default order.
var SignerList = signers.List(page.Order{Field: "uid"})

// InsertSigner adds a signer. It returns fault.NotFound if its group does not exist, fault.AlreadyExists if the
// group has a signer of that name, and fault.FailedPrecondition if it has registry.MaxSigners signers.
func (s *Store) InsertSigner(ctx context.Context, v registry.Signer) error {
	return s.write(ctx, func(t Tx) error {
		if err := t.RequireGroup(ctx, v.Home()); err != nil {
			return err
		}
		var n int
		err := t.Row(ctx, `SELECT count(*) FROM signers WHERE parent = $1`, []any{store.Segment(v.Home())}, &n)
		if err != nil {
			return err
		}
		if n >= registry.MaxSigners {
			return fault.Unmet("TOO_MANY_SIGNERS", "a group can have at most %d signers", registry.MaxSigners)
		}
		t.signersChanged()
		return store.Insert(ctx, t.Tx, &signers, v)
	})
}

// signersChanged clears the cached results of pull checks on every replica.
func (t Tx) signersChanged() { t.PathsChanged() }

// Signer returns a signer, or fault.NotFound.
func (s *Store) Signer(ctx context.Context, uid resource.UID) (registry.Signer, error) {
	return store.Get(ctx, s.DB, &signers, uid)
}

// Signers returns one page of signers.
func (s *Store) Signers(
	ctx context.Context, r store.Reach, f resource.Filter, p page.Request,
) (page.Page[registry.Signer], error) {
	return store.List(ctx, s.DB, &signers, r, f, p)
}

// DeleteSigner removes a signer, or returns fault.NotFound.
func (s *Store) DeleteSigner(ctx context.Context, uid resource.UID) error {
	return s.write(ctx, func(t Tx) error {
		v, err := store.Lock(ctx, t.Tx, &signers, uid, s.Engine.ForDelete)
		if err != nil {
			return err
		}
		t.signersChanged()
		return store.Remove(ctx, t.Tx, &signers, v)
	})
}

// SignersOver returns the signers that are trusted in a group, ordered by name: the signers of the group or, if it
// has none, of the nearest group above that has any.
func (s *Store) SignersOver(ctx context.Context, group resource.UID) (nearest []registry.Signer, _ error) {
	q := store.Query{Engine: s.Engine}
	path := append(group.Ancestors(), group)
	segs := make([]int64, len(path))
	for i, g := range path {
		segs[i] = store.Segment(g)
	}
	where := ` WHERE t.parent IN (SELECT v FROM ` + s.Engine.Unnest(&q, segs) + ` AS s) ORDER BY t.name`
	found, err := signers.All(ctx, s.Rows, where, q.Args...)
	for i := len(path) - 1; i >= 0 && len(nearest) == 0; i-- {
		for _, v := range found {
			if v.Home() == path[i] { // the segment alone is not enough, because another group could have the same one
				nearest = append(nearest, v)
			}
		}
	}
	return nearest, err
}

// SignaturesAbout returns up to n manifests of at most size bytes that may be signatures of a manifest, with their
// bodies. The oldest come first, so that later manifests cannot hide a signature. Manifests whose annotations name
// the predicate of another document, such as a scan report, are left out.
func (s *Store) SignaturesAbout(
	ctx context.Context, repo resource.UID, subject, predicate string, size, n int,
) ([]registry.Manifest, error) {
	const annotation = `"dev.sigstore.bundle.predicateType":"`
	return store.ReadAll(ctx, s.Rows, func(row store.Scanner) (registry.Manifest, error) {
		m := registry.Manifest{Subject: subject}
		err := row.Scan(&m.Digest, &m.MediaType, &m.Size, &m.ArtifactType, &m.Body)
		return m, err
	}, `SELECT digest, media_type, size, artifact_type, body FROM `+registrydb.ManifestRows+` AS manifests
		WHERE repo = $1 AND subject = $2 AND subject <> '' AND size <= $3
			AND (artifact_type LIKE 'application/vnd.dev.sigstore.bundle%'
				OR artifact_type LIKE 'application/vnd.dev.cosign.%')
			AND (replace(annotations, $4, '') = annotations OR replace(annotations, $5, '') <> annotations)
		ORDER BY push_ms, digest LIMIT $6`, store.Segment(repo), subject, size, annotation,
		annotation+predicate+`"`, n)
}

// SignedIndexes returns up to n digests of indexes in a repo that list a manifest, directly or through other indexes,
// and to which something is attached, the oldest first.
func (s *Store) SignedIndexes(ctx context.Context, repo resource.UID, digest string, n int) ([]string, error) {
	return store.ReadColumn[string](ctx, s.Rows, `SELECT m.digest FROM `+registrydb.ManifestRows+` AS m
		WHERE m.repo = $1 AND m.digest <> $2 AND m.digest IN (SELECT i.digest FROM `+registrydb.IndexesAbove(
		registrydb.OneManifest)+` AS i) AND (
			EXISTS (SELECT 1 FROM `+registrydb.ManifestRows+` AS a WHERE a.repo = m.repo AND a.subject = m.digest
			AND a.subject <> '')
			OR EXISTS (SELECT 1 FROM `+registrydb.TagRows+` AS t WHERE t.parent = m.repo AND t.name IN
				(replace(m.digest, ':', '-'), replace(m.digest, ':', '-') || '.sig')))
		ORDER BY m.push_ms, m.digest LIMIT $3`, store.Segment(repo), digest, n)
}
