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

// SBOMs that are attached to an image are a second origin of its packages. What one says is
// what somebody claims who may push to the repo: it counts for the image in that repo only,
// while what was found in the files of an image is known wherever the image is.

const (
	lookTime = 5 * time.Minute // to look through the documents of an image

	maxSBOMPackages = 50_000 // of all SBOMs of an image
	maxSBOMWarnings = 10     // of one attached manifest
)

// lookThrough looks through the documents of one image after the other.
func (x *Indexer) lookThrough(ctx context.Context) {
	var last *imagedb.QueuedImage
	for ctx.Err() == nil {
		q, ok, err := x.images.ReserveSBOMs(ctx, last, reserveLife)
		if err == nil && ok {
			last = &q
			err = x.look(ctx, q)
		}
		if err != nil && ctx.Err() == nil {
			x.cfg.Log.WarnContext(ctx, "attached SBOMs are not read", "err", err)
		}
		if err != nil || !ok {
			sleep(ctx, pollEvery)
		}
	}
}

// look looks through the documents of an image, and stores which packages they list.
func (x *Indexer) look(ctx context.Context, q imagedb.QueuedImage) error {
	timed, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()
	stop := x.keepSBOMs(timed, q)
	all, err := x.readSBOMs(timed, q)
	if err == nil {
		err = x.resolve(timed, q, all)
	}
	var platform string
	if err == nil {
		platform, err = x.registry.Platform(timed, q.Repo, q.Digest)
	}
	q = stop()
	q.Platform = platform
	if err == nil {
		return x.images.Write(ctx, func(t *store.Tx) error { return x.saveSBOMs(ctx, t, q, all) })
	}
	wait := retryAfter
	if ctx.Err() != nil { // the server ends: another one goes on
		wait = 0
	}
	if postponed := x.images.PostponeSBOMs(context.WithoutCancel(ctx), q, wait); postponed != nil {
		return postponed
	}
	if ctx.Err() != nil || errors.Is(err, fault.NotFound) { // the image was deleted meanwhile
		return nil
	}
	return err
}

// keepSBOMs keeps an image from others until it is stopped, which returns the image as it is
// reserved then.
func (x *Indexer) keepSBOMs(ctx context.Context, q imagedb.QueuedImage) (stop func() imagedb.QueuedImage) {
	end := whileReserved(ctx, func(ctx context.Context) bool {
		next, still, err := x.images.KeepSBOMs(ctx, q, reserveLife)
		if err != nil || !still { // somebody else looks, or will
			return false
		}
		q = next
		return true
	})
	return func() imagedb.QueuedImage { end(); return q }
}

// A claim is what the documents of one attached manifest say.
type claim struct {
	registry.SBOM
	packages []registry.Package
}

// readSBOMs reads the SBOMs that are attached to an image, one for each attached manifest.
func (x *Indexer) readSBOMs(ctx context.Context, q imagedb.QueuedImage) (all []claim, _ error) {
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
		if n := len(all); n == 0 || all[n-1].Manifest != d.Manifest {
			all = append(all, claim{SBOM: registry.SBOM{Origin: d.Origin}})
		}
		c := &all[len(all)-1]
		c.add(found, maxSBOMPackages-total)
		total += len(found.Packages)
	}
	return all, nil
}

// readSBOM reads a document. One that cannot be understood has a warning instead of
// packages.
func (x *Indexer) readSBOM(
	ctx context.Context, q imagedb.QueuedImage, document inspect.Layer, large string,
) (inspect.Result, error) {
	if large != "" {
		return inspect.Result{Document: &inspect.Document{}, Warnings: []string{large}}, nil
	}
	found, err := x.cfg.ReadSBOM(ctx, document, q.Digest)
	var reason *inspect.NotUnderstood
	switch {
	case errors.Is(err, fault.NotFound): // the repo does not have the document
		return found, inspect.ErrNoSBOM
	case errors.As(err, &reason):
		x.cfg.Log.InfoContext(ctx, "an attached document is not understood", "repo", string(q.Repo), "digest",
			document.Digest, "reason", reason.Reason)
		return inspect.Result{Document: &inspect.Document{}, Warnings: []string{"not understood: " + reason.Reason}}, nil
	}
	return found, err
}

// add adds what a document says, up to a number of packages.
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

// identity is what two origins call a package in the same way. Package URLs of one package
// differ in their qualifiers, and not every tool knows the release of a distribution.
func identity(p registry.Package) [3]string {
	ecosystem, _, _ := strings.Cut(p.Ecosystem, ":")
	return [3]string{ecosystem, p.Name, p.Version}
}

// resolve finds the numbers of the packages that are claimed. A package that the files of
// the image tell of, or another SBOM, is the same package. What is in the image is not asked
// if the repo lacks its layers, since whoever has attached the SBOM would learn it.
func (x *Indexer) resolve(ctx context.Context, q imagedb.QueuedImage, all []claim) error {
	known := map[[3]string]int64{}
	if len(all) > 0 {
		if err := x.indexed(ctx, q, known); err != nil {
			return err
		}
	}
	for i := range all {
		fresh := slices.DeleteFunc(slices.Clone(all[i].packages), func(p registry.Package) bool {
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
		for _, p := range all[i].packages {
			all[i].IDs = append(all[i].IDs, known[identity(p)])
		}
		slices.Sort(all[i].IDs)
		all[i].IDs = slices.Compact(all[i].IDs)
	}
	return nil
}

// indexed adds to known the packages that the files of an image tell of.
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
		same := identity(packages[id])
		if packages[known[same]].Owned || known[same] == 0 { // of two, the one that has findings
			known[same] = id
		}
	}
	return err
}

// saveSBOMs is the transaction of look. It locks as save does.
func (x *Indexer) saveSBOMs(ctx context.Context, t *store.Tx, q imagedb.QueuedImage, all []claim) error {
	images, packages := imagedb.In(t), findingdb.In(t)
	if there, err := images.HoldImage(ctx, q); err != nil || !there {
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
	stored := make([]registry.SBOM, len(all))
	for i, c := range all {
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

// unindex takes from an image that was inspected, and is not understood now, the packages
// that its files told of.
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
	told := slices.Concat(have, claimed)
	slices.Sort(told)
	if err := packages.Changing(ctx, []int64{*number}, slices.Compact(told), true); err != nil {
		return err
	}
	return packages.ChangeImages(ctx, []int64{*number}, nil, minus(have, claimed))
}
