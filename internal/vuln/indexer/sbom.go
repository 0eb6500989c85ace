package indexer

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/registry"
	"github.com/holdfast-dev/holdfast/internal/registry/imagedb"
	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/internal/vuln/findingdb"
	"github.com/holdfast-dev/holdfast/internal/vuln/inspect"
)

// The packages of an image come from its files, and from the SBOMs that are attached to it. An SBOM is a claim of a
// user who may push to the repo. So the packages in an SBOM count only for the image in that repo. The packages in the
// files of an image count in every repo.

const (
	readTimeout = 5 * time.Minute // time limit for reading all documents of one image

	maxSBOMPackages = 50_000 // maximum number of packages in all SBOMs of an image
	maxSBOMWarnings = 10     // maximum number of warnings about one attached manifest
)

// readQueue reads the SBOMs of one image after the other.
func (x *Indexer) readQueue(ctx context.Context) {
	var last *imagedb.QueuedImage
	for ctx.Err() == nil {
		woken := x.images.Woken(store.DocumentQueue)
		q, ok, err := x.images.ReserveSBOMs(ctx, last, reserveLife)
		if err == nil && ok {
			last = &q
			if err = x.images.ChargeTurn(ctx, q); err == nil {
				err = x.readDocuments(ctx, q)
			}
		}
		if err != nil && ctx.Err() == nil {
			x.cfg.Log.WarnContext(ctx, "attached SBOMs are not read", "err", err)
		}
		if err != nil {
			sleep(ctx, pollEvery)
		} else if !ok {
			await(ctx, woken)
		}
	}
}

// readDocuments reads the SBOMs of an image and stores their packages.
func (x *Indexer) readDocuments(ctx context.Context, q imagedb.QueuedImage) error {
	timed, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	stop := x.keepSBOMs(timed, q)
	claims, err := x.readSBOMs(timed, q)
	if err == nil {
		err = x.resolve(timed, q, claims)
	}
	var platform string
	if err == nil {
		platform, err = x.registry.Platform(timed, q.Repo, q.Digest)
	}
	q = stop()
	q.Platform = platform
	if err == nil {
		return x.images.Write(ctx, func(t *store.Tx) error { return x.saveSBOMs(ctx, t, q, claims) })
	}
	wait := retryAfter
	if ctx.Err() != nil { // the server stops, and another replica continues
		wait = 0
	}
	if postponed := x.images.PostponeSBOMs(context.WithoutCancel(ctx), q, wait); postponed != nil {
		return postponed
	}
	if ctx.Err() != nil || errors.Is(err, fault.NotFound) { // the server stops, or the image was deleted
		return nil
	}
	return err
}

// keepSBOMs renews the reservation of an image until stop is called. stop returns the latest reservation.
func (x *Indexer) keepSBOMs(ctx context.Context, q imagedb.QueuedImage) (stop func() imagedb.QueuedImage) {
	end := whileReserved(ctx, func(ctx context.Context) bool {
		next, still, err := x.images.KeepSBOMs(ctx, q, reserveLife)
		if err != nil || !still { // another replica may read the documents now
			return false
		}
		q = next
		return true
	})
	return func() imagedb.QueuedImage { end(); return q }
}

// A claim is the content of the SBOMs in one attached manifest.
type claim struct {
	registry.SBOM
	packages []registry.Package
}

// readSBOMs reads the SBOMs that are attached to an image. It returns one claim for
// each attached manifest.
func (x *Indexer) readSBOMs(ctx context.Context, q imagedb.QueuedImage) (claims []claim, _ error) {
	documents, err := x.registry.Candidates(ctx, q.Repo, q.Digest)
	if err != nil {
		return nil, err
	}
	total := 0
	for _, d := range documents {
		layer := inspect.Layer{MediaType: d.Layer.MediaType, Digest: d.Layer.Digest, Open: d.Layer.Open}
		found, err := x.readSBOM(ctx, q, layer, d.Large)
		if errors.Is(err, inspect.ErrNoSBOM) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if n := len(claims); n == 0 || claims[n-1].Manifest != d.Manifest {
			claims = append(claims, claim{SBOM: registry.SBOM{Origin: d.Origin}})
		}
		c := &claims[len(claims)-1]
		c.add(found, maxSBOMPackages-total)
		total += len(found.Packages)
	}
	return claims, nil
}

// readSBOM reads a document. If the document cannot be read as an SBOM, it adds a warning instead of packages.
func (x *Indexer) readSBOM(
	ctx context.Context, q imagedb.QueuedImage, document inspect.Layer, large string,
) (inspect.Result, error) {
	if large != "" {
		return inspect.Result{Document: &inspect.Document{}, Warnings: []string{large}}, nil
	}
	found, err := x.cfg.ReadSBOM(ctx, x.images.TenantOf(ctx, q), document, q.Digest)
	used, _ := usage(found, err)
	if err := x.images.Charge(ctx, q, used); err != nil {
		return found, err
	}
	var reason *inspect.NotUnderstood
	switch {
	case errors.Is(err, fault.NotFound): // the repo does not contain the document
		return found, inspect.ErrNoSBOM
	case errors.As(err, &reason):
		x.cfg.Log.InfoContext(ctx, "an attached document is not understood", "repo", string(q.Repo), "digest",
			document.Digest, "reason", reason.Reason)
		return inspect.Result{Document: &inspect.Document{}, Warnings: []string{"not understood: " + reason.Reason}}, nil
	}
	return found, err
}

// add adds the packages of a document to the claim, up to the limit most.
func (c *claim) add(found inspect.Result, most int) {
	if d := found.Document; d != nil {
		c.Format, c.Tool = cmp.Or(c.Format, clean(d.Format)), cmp.Or(c.Tool, clean(d.Tool))
	}
	for i, p := range found.Packages {
		if i >= max(most, 0) {
			found.Warnings = append(found.Warnings, "the SBOMs of the image have too many packages; some are left out")
			break
		}
		stored := packageOf(p)
		stored.Name, stored.Owned = p.Name, false
		if storable(stored.Ecosystem, stored.Name, stored.Version, stored.SourceName, stored.SourceVersion, stored.PURL) {
			c.packages = append(c.packages, stored)
		}
	}
	for _, w := range found.Warnings {
		if len(c.Warnings) < maxSBOMWarnings {
			c.Warnings = append(c.Warnings, clean(w))
		}
	}
}

// identity returns the fields by which packages from files and SBOMs are compared. Package URLs are not compared,
// because the URLs of one package may differ in their qualifiers, and because not every tool knows the release of a
// distribution.
func identity(p registry.Package) [3]string {
	ecosystem, _, _ := strings.Cut(p.Ecosystem, ":")
	return [3]string{ecosystem, p.Name, p.Version}
}

// resolve sets the IDs of the packages in claims. If the files of the image or another SBOM contain a package with the
// same identity, the ID of that package is used. If the repo lacks layers of the image, the files of the image are
// ignored. Otherwise the author of the SBOM would learn their content.
func (x *Indexer) resolve(ctx context.Context, q imagedb.QueuedImage, claims []claim) error {
	known := map[[3]string]int64{}
	if len(claims) > 0 {
		if err := x.indexed(ctx, q, known); err != nil {
			return err
		}
	}
	for i := range claims {
		fresh := slices.DeleteFunc(slices.Clone(claims[i].packages), func(p registry.Package) bool {
			return known[identity(p)] != 0
		})
		ids, err := x.packages.AddPackages(ctx, fresh)
		if err != nil {
			return err
		}
		for n, p := range fresh {
			if known[identity(p)] == 0 {
				known[identity(p)] = ids[n]
			}
		}
		for _, p := range claims[i].packages {
			claims[i].IDs = append(claims[i].IDs, known[identity(p)])
		}
		slices.Sort(claims[i].IDs)
		claims[i].IDs = slices.Compact(claims[i].IDs)
	}
	return nil
}

// indexed adds the IDs of the packages in the files of an image to known, by identity.
func (x *Indexer) indexed(ctx context.Context, q imagedb.QueuedImage, known map[[3]string]int64) error {
	images, err := x.images.Images(ctx, q.Repo, []string{q.Digest})
	if err != nil || images[q.Digest].State != registry.ImageIndexed {
		return err
	}
	ids, _, err := x.packages.PackageIDs(ctx, q.Digest)
	if errors.Is(err, fault.NotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	packages, err := x.packages.ByID(ctx, ids)
	for _, id := range ids {
		key := identity(packages[id])
		// A package without an owner is preferred, because only such a package has findings.
		if packages[known[key]].Owned || known[key] == 0 {
			known[key] = id
		}
	}
	return err
}

// saveSBOMs is the transaction of readDocuments. It takes its locks in the same order as save.
func (x *Indexer) saveSBOMs(ctx context.Context, t *store.Tx, q imagedb.QueuedImage, claims []claim) error {
	images, packages := imagedb.In(t), findingdb.In(t)
	if exists, err := images.HoldImage(ctx, q); err != nil || !exists {
		return err
	}
	if still, err := images.SettleSBOMs(ctx, q); err != nil || !still {
		return err
	}
	have, _, err := packages.LockInspection(ctx, q.Digest)
	if err != nil {
		return err
	}
	number, state, err := images.ImageNumber(ctx, q)
	if err != nil {
		return err
	}
	if state != registry.ImageIndexed {
		have = nil
	}
	if err := x.changing(ctx, t, q, have); err != nil {
		return err
	}
	stored := make([]registry.SBOM, len(claims))
	for i, c := range claims {
		stored[i] = c.SBOM
	}
	before, after, err := packages.SaveSBOMs(ctx, q.Repo, q.Digest, stored)
	if err != nil || number == nil && len(after) == 0 {
		return err
	}
	n, err := images.NumberImage(ctx, q)
	if err != nil {
		return err
	}
	return packages.ChangeImages(ctx, []int64{n}, after, minus(minus(before, after), have))
}

// unindex removes the packages that an earlier inspection found in the files of an image that cannot be read now.
func (x *Indexer) unindex(ctx context.Context, t *store.Tx, q imagedb.QueuedImage) error {
	images, packages := imagedb.In(t), findingdb.In(t)
	number, state, err := images.ImageNumber(ctx, q)
	if err != nil || number == nil || state != registry.ImageIndexed {
		return err
	}
	have, _, err := packages.LockInspection(ctx, q.Digest)
	if err != nil {
		return err
	}
	claimed, err := packages.SBOMPackages(ctx, q.Repo, q.Digest)
	if err != nil {
		return err
	}
	if err := images.LockChunks(ctx, []int64{*number}); err != nil {
		return err
	}
	announced := slices.Concat(have, claimed)
	slices.Sort(announced)
	if err := packages.MarkChanging(ctx, []int64{*number}, slices.Compact(announced), true); err != nil {
		return err
	}
	return packages.ChangeImages(ctx, []int64{*number}, nil, minus(have, claimed))
}
