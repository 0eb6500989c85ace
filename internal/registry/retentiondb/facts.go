package retentiondb

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/registry"
	"github.com/holdfast-dev/holdfast/internal/registry/registrydb"
	"github.com/holdfast-dev/holdfast/internal/store"
)

// Limits on the rows that one transaction reads to decide which images of a repo to keep.
const (
	maxJudged = 50_000  // manifests of the repo
	maxBased  = 100_000 // images of the organization that have an annotation for their base image
)

// judge decides which images of a locked repo are kept. path is the address of the repo in the registry.
func (s *Store) judge(
	ctx context.Context, t Tx, repo resource.UID, path string, rules registry.Retention, d registrydb.Deletion,
) (*judge, error) {
	j := &judge{rules: rules, frozen: d.Frozen, now: d.Time, nodes: map[string]*node{}}
	if kept := s.KeepPulls; kept > 0 && kept < days(rules.KeepPulledDays) {
		return nil, fault.Unmet("PULLS_NOT_KEPT",
			"records of pulls are kept for %d days, but the rules need those of the last %d days",
			int(kept.Hours()/24), rules.KeepPulledDays)
	}
	if err := t.readNodes(ctx, j, repo); err != nil {
		return nil, err
	}
	j.link()
	j.judgeByManifests()
	keepNamed := func(ctx context.Context, j *judge, repo resource.UID) error { return t.keepNamed(ctx, j, repo, path) }
	for _, rule := range []struct {
		enabled bool
		judge   func(context.Context, *judge, resource.UID) error
	}{
		{rules.KeepYoungerDays > 0, t.keepPushed},
		{rules.KeepDeployed, t.keepDeployed},
		{rules.KeepDeployed, keepNamed},
		{rules.KeepPulledDays > 0, t.keepPulled},
		{rules.KeepNeeded, t.keepNeeded},
	} {
		if rule.enabled {
			if err := rule.judge(ctx, j, repo); err != nil {
				return nil, err
			}
		}
	}
	return j, nil
}

// readNodes reads the manifests of a repo with their tags, and which manifests the indexes list.
func (t Tx) readNodes(ctx context.Context, j *judge, repo resource.UID) error {
	args := []any{store.Segment(repo)}
	err := t.Rows(ctx, `SELECT digest, media_type, artifact_type, subject, size, push_ms
		FROM `+registrydb.ManifestRows+` AS manifests
		WHERE repo = $1`, args,
		func(row store.Scanner) (bool, error) {
			n := &node{}
			err := row.Scan(&n.digest, &n.mediaType, &n.artifactType, &n.subject, &n.size, &n.time)
			j.nodes[n.digest] = n
			return len(j.nodes) > maxJudged, err
		})
	if err == nil && len(j.nodes) > maxJudged {
		err = fault.Unmet("TOO_MANY_MANIFESTS", "the repo has more than %d manifests; delete some first", maxJudged)
	}
	if err != nil {
		return err
	}
	const selectTags = `SELECT name, digest, update_ms FROM ` + registrydb.TagRows + ` AS tags WHERE parent = $1`
	err = t.Rows(ctx, selectTags, args, func(row store.Scanner) (bool, error) {
		var name, digest string
		var updated int64
		if err := row.Scan(&name, &digest, &updated); err != nil {
			return false, err
		}
		if n := j.nodes[digest]; n != nil {
			n.tags, n.time = append(n.tags, name), max(n.time, updated)
		}
		return false, nil
	})
	if err != nil {
		return err
	}
	return t.Rows(ctx, `SELECT DISTINCT digest, child FROM `+registrydb.ManifestRefRows+` AS manifest_refs
		WHERE repo = $1 AND child IS NOT NULL`, args,
		func(row store.Scanner) (bool, error) {
			var digest, child string
			if err := row.Scan(&digest, &child); err != nil {
				return false, err
			}
			if n, c := j.nodes[digest], j.nodes[child]; n != nil && c != nil {
				n.children, c.parents = append(n.children, c), append(c.parents, n)
			}
			return false, nil
		})
}

// keepPushed keeps images that were pushed in the last KeepYoungerDays. It reads the records of pushes, because
// pushing an image again changes neither its tags nor the time of its first push.
func (t Tx) keepPushed(ctx context.Context, j *judge, repo resource.UID) error {
	return t.keepRecorded(ctx, j, repo, true, j.rules.KeepYoungerDays, registry.KeptYounger)
}

// keepPulled keeps images that were pulled in the last KeepPulledDays.
func (t Tx) keepPulled(ctx context.Context, j *judge, repo resource.UID) error {
	return t.keepRecorded(ctx, j, repo, false, j.rules.KeepPulledDays, registry.KeptPulled)
}

func (t Tx) keepRecorded(
	ctx context.Context, j *judge, repo resource.UID, push bool, within int32, why registry.KeepReason,
) error {
	q := store.Query{Engine: t.DB.Engine}
	each := t.DB.Engine.Unnest(&q, j.undecided())
	text := `SELECT s.v FROM ` + each + ` AS s WHERE EXISTS (SELECT 1 FROM ` + registrydb.PullRows + ` AS p
		WHERE p.parent = ` + q.Arg(store.Segment(repo)) + ` AND p.digest = s.v
		AND p.create_ms > ` + q.Arg(store.MS(j.now.Add(-days(within)))) + ` AND p.push = ` + q.Arg(push) + `)`
	return t.keepDigests(ctx, j, why, text, q.Args...)
}

// keepDeployed keeps images that an inventory of the organization reports as running. The last report of an inventory
// counts even if it is old, because an inventory that stopped reporting may still run the images.
func (t Tx) keepDeployed(ctx context.Context, j *judge, repo resource.UID) error {
	q := store.Query{Engine: t.DB.Engine}
	each := t.DB.Engine.Unnest(&q, j.undecided())
	text := `SELECT s.v FROM ` + each + ` AS s WHERE EXISTS (SELECT 1 FROM inventory_entries AS e
		WHERE e.root = ` + q.Arg(store.Segment(repo.Root())) + ` AND e.digest = s.v)`
	return t.keepDigests(ctx, j, registry.KeptDeployed, text, q.Args...)
}

// keepNamed keeps images that an inventory reports as running if the report names them by a tag of the repo, without
// a digest.
func (t Tx) keepNamed(ctx context.Context, j *judge, repo resource.UID, path string) error {
	images, err := store.ReadColumn[string](ctx, t.Rows,
		`SELECT DISTINCT image FROM inventory_entries WHERE root = $1 AND digest = ''`, store.Segment(repo.Root()))
	if err != nil {
		return err
	}
	running := map[string]bool{}
	for _, image := range images {
		name, tag := image, "latest"
		if i := strings.LastIndexByte(image, ':'); i > strings.LastIndexByte(image, '/') {
			name, tag = image[:i], image[i+1:]
		}
		if name == path || strings.HasSuffix(name, "/"+path) {
			running[tag] = true
		}
	}
	for _, n := range j.nodes {
		if slices.ContainsFunc(n.tags, func(tag string) bool { return running[tag] }) {
			n.keep(registry.KeptDeployed)
		}
	}
	return nil
}

// keepDigests keeps the images whose digests a statement returns, and the indexes that list them.
func (t Tx) keepDigests(ctx context.Context, j *judge, why registry.KeepReason, text string, args ...any) error {
	digests, err := store.ReadColumn[string](ctx, t.Rows, text, args...)
	for _, digest := range digests {
		j.keepWith(j.nodes[digest], why)
	}
	return err
}

// baseDigest is the annotation that names the base image of an image. The condition of a database index contains it.
const baseDigest = "org.opencontainers.image.base.digest"

// keepNeeded keeps the base images of other images of the organization.
func (t Tx) keepNeeded(ctx context.Context, j *judge, repo resource.UID) error {
	below, above := registrydb.Below(repo.Root())
	based := 0
	err := t.Rows(ctx, `SELECT m.digest, m.annotations FROM `+registrydb.RepoRows+` AS r
		CROSS JOIN `+registrydb.ManifestRows+` AS m
		WHERE r.uid > $1 AND r.uid < $2 AND m.repo = r.seg
		AND replace(m.annotations, '`+baseDigest+`', '') <> m.annotations`, []any{below, above},
		func(row store.Scanner) (bool, error) {
			var digest, text string
			if err := row.Scan(&digest, &text); err != nil {
				return false, err
			}
			var annotations map[string]string
			if err := json.Unmarshal([]byte(text), &annotations); err != nil {
				return false, fmt.Errorf("annotations of %s: %w", digest, err)
			}
			if n := j.nodes[annotations[baseDigest]]; n != nil && n.digest != digest {
				j.keepWith(n, registry.KeptNeeded)
			}
			based++
			return based > maxBased, nil
		})
	if err == nil && based > maxBased {
		err = fault.Unmet("TOO_MANY_IMAGES", "more than %d images of the organization name their base image", maxBased)
	}
	return err
}

// measure adds to a plan the sizes of the manifests that are deleted, and the time and identity of the last pull of
// each image.
func (t Tx) measure(ctx context.Context, v verdict, plan *RetentionPlan) error {
	var gone []string
	owner := map[string]int{} // for each deleted manifest, the index in plan.Going of the image with which it is deleted
	for i, g := range plan.Going {
		owner[g.Digest] = i
		for _, digest := range g.With {
			owner[digest] = i
		}
	}
	for _, n := range v.gone {
		gone = append(gone, n.digest)
		plan.Bytes += n.size
		plan.Going[owner[n.digest]].Size += n.size
	}
	if len(gone) == 0 {
		return nil
	}
	q := store.Query{Engine: t.DB.Engine}
	each, repo := t.DB.Engine.Unnest(&q, gone), q.Arg(store.Segment(plan.Repo))
	err := t.Rows(ctx, `SELECT s.v, b.size FROM `+each+` AS s CROSS JOIN `+registrydb.ManifestRefRows+` AS r
		CROSS JOIN `+registrydb.BlobRows+` AS b
		WHERE r.repo = `+repo+` AND r.digest = s.v AND b.digest = r.blob`, q.Args, func(row store.Scanner) (bool, error) {
		var digest string
		var size int64
		err := row.Scan(&digest, &size)
		plan.Going[owner[digest]].Size += size
		return false, err
	})
	if err != nil {
		return err
	}
	freed, err := t.freed(ctx, plan.Repo, gone)
	plan.Bytes += freed
	if err != nil {
		return err
	}
	return t.lastPulls(ctx, plan, gone, owner)
}

// freed returns the total size in bytes of the blobs in a repo that only the deleted manifests need.
func (t Tx) freed(ctx context.Context, repo resource.UID, gone []string) (n int64, _ error) {
	q := store.Query{Engine: t.DB.Engine}
	each, in := t.DB.Engine.Unnest(&q, gone), q.Arg(store.Segment(repo))
	err := t.Row(ctx, `SELECT CAST(coalesce(sum(b.size), 0) AS BIGINT) FROM (
			SELECT DISTINCT r.blob FROM `+each+` AS s CROSS JOIN `+registrydb.ManifestRefRows+` AS r
			WHERE r.repo = `+in+` AND r.digest = s.v AND r.blob IS NOT NULL) AS f
		CROSS JOIN `+registrydb.BlobRows+` AS b WHERE b.digest = f.blob AND NOT EXISTS (SELECT 1
		FROM `+registrydb.ManifestRefRows+` AS o
			WHERE o.repo = `+in+` AND o.blob = f.blob
			AND o.digest NOT IN (SELECT v FROM `+t.DB.Engine.Unnest(&q, gone)+` AS g))`,
		q.Args, &n)
	return n, err
}

// lastPulls adds to a plan the last pull of each image, or of a manifest that is deleted with it.
func (t Tx) lastPulls(ctx context.Context, plan *RetentionPlan, gone []string, owner map[string]int) error {
	q := store.Query{Engine: t.DB.Engine}
	each, repo := t.DB.Engine.Unnest(&q, gone), q.Arg(store.Segment(plan.Repo))
	return t.Rows(ctx, `SELECT p.uid, p.digest, p.tag, p.identity, p.create_ms FROM `+each+` AS s
		CROSS JOIN `+registrydb.PullRows+` AS p
		WHERE p.seg = (SELECT l.seg FROM `+registrydb.PullRows+` AS l WHERE l.parent = `+repo+` AND l.digest = s.v
		AND NOT l.push
		ORDER BY l.parent DESC, l.digest DESC, l.create_ms DESC LIMIT 1)`, q.Args, func(row store.Scanner) (bool, error) {
		var p registry.Pull
		var ms int64
		if err := row.Scan(&p.UID, &p.Digest, &p.Tag, &p.Identity, &ms); err != nil {
			return false, err
		}
		p.Time = time.UnixMilli(ms).UTC()
		if g := &plan.Going[owner[p.Digest]]; g.LastPull == nil || g.LastPull.Time.Before(p.Time) {
			g.LastPull = &p
		}
		return false, nil
	})
}
