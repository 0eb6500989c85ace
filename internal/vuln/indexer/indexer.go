// Package indexer inspects images. It takes them from the queue that pushes fill,
// reads their layers and attached SBOMs, and stores the packages it finds.
package indexer

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/platform/metric"
	"github.com/holdfast-dev/holdfast/internal/registry"
	"github.com/holdfast-dev/holdfast/internal/registry/imagedb"
	"github.com/holdfast-dev/holdfast/internal/registry/images"
	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/internal/vuln/advisory/version"
	"github.com/holdfast-dev/holdfast/internal/vuln/findingdb"
	"github.com/holdfast-dev/holdfast/internal/vuln/inspect"
)

const (
	reserveLife = 30 * time.Second // time for which an image is reserved for one replica
	pollEvery   = time.Second      // for pushes to other replicas, which wake nobody here
	sweepFirst  = 10 * time.Second
	sweepEvery  = 30 * time.Minute

	retryAfter = time.Minute

	// maxTries is the maximum number of inspections of an image that end without a result, because the process was
	// killed. The image may be the cause.
	maxTries = 5
)

const maxText = 1024 // maximum length of each text in a package, in bytes

// Config configures an Indexer.
type Config struct {
	Workers int // number of images that are inspected at the same time; 0 means one

	// Read reads the layers of an image of a tenant; nil means to read them in children. Version is the version of its
	// results.
	Read    func(_ context.Context, tenant string, layers []inspect.Layer) (inspect.Result, error)
	Version int

	// ReadSBOM reads a document about an image of a tenant; nil means to read it in a child.
	ReadSBOM func(_ context.Context, tenant string, document inspect.Layer, image string) (inspect.Result, error)

	Turn time.Duration // time after which an image makes room for images of other tenants; 0 means ten seconds

	Metrics metric.Metrics
	Log     *slog.Logger
}

// An Indexer inspects images. The Indexers of several replicas share the work.
type Indexer struct {
	images   *imagedb.Store
	packages *findingdb.Store
	registry *images.Reader
	cfg      Config
	children *inspect.Pool
	long     longImages
}

// New returns an Indexer for the images of a registry.
func New(index *imagedb.Store, packages *findingdb.Store, r *images.Reader, cfg Config) *Indexer {
	cfg.Workers = max(cfg.Workers, 1)
	children := &inspect.Pool{Keep: cfg.Workers + 1} // the workers, and the reader of documents
	if cfg.Read == nil {
		cfg.Version = inspect.Version
		cfg.Read = func(ctx context.Context, tenant string, layers []inspect.Layer) (inspect.Result, error) {
			return children.Image(ctx, tenant, layers, inspect.Limits{})
		}
	}
	if cfg.ReadSBOM == nil {
		cfg.ReadSBOM = children.SBOM
	}
	cfg.Turn = cmp.Or(cfg.Turn, turn)
	cfg.Log = cmp.Or(cfg.Log, slog.Default())
	return &Indexer{images: index, packages: packages, registry: r, cfg: cfg, children: children,
		long: longImages{room: cfg.Workers}}
}

// Waiting returns the number of images in the queue.
func (x *Indexer) Waiting(ctx context.Context) (int64, error) { return x.images.QueueLength(ctx) }

// Oldest returns the time at which the first of the images that wait for their first inspection was pushed, or the zero
// time if none waits.
func (x *Indexer) Oldest(ctx context.Context) (time.Time, error) { return x.images.OldestQueued(ctx) }

// Run inspects images until ctx ends.
func (x *Indexer) Run(ctx context.Context) error {
	defer x.children.Close()
	var loops sync.WaitGroup
	for range x.cfg.Workers {
		loops.Go(func() { x.work(ctx, &loops) })
	}
	loops.Go(func() { x.readQueue(ctx) })
	loops.Go(func() { x.sweep(ctx) })
	loops.Wait()
	return nil
}

// work inspects one image after the other. An image that is handed over is inspected in rest.
func (x *Indexer) work(ctx context.Context, rest *sync.WaitGroup) {
	var last *imagedb.QueuedImage
	for ctx.Err() == nil {
		woken := x.images.Woken(store.InspectionQueue)
		q, ok, err := x.images.ReserveImage(ctx, last, reserveLife)
		if err == nil && ok {
			last = &q
			err = x.take(ctx, q, rest)
		}
		if err != nil && ctx.Err() == nil {
			x.cfg.Log.WarnContext(ctx, "images are not inspected", "err", err)
		}
		if err != nil {
			sleep(ctx, pollEvery)
		} else if !ok {
			await(ctx, woken)
		}
	}
}

// sweep calls Sweep at regular intervals.
func (x *Indexer) sweep(ctx context.Context) {
	for wait := sweepFirst; ; wait = sweepEvery {
		sleep(ctx, wait)
		if ctx.Err() != nil {
			return
		}
		if err := x.Sweep(ctx); err != nil && ctx.Err() == nil {
			x.cfg.Log.WarnContext(ctx, "images were not swept", "err", err)
		}
	}
}

// Sweep queues images that were inspected by an older version of the extractors, and removes the data of deleted
// images.
func (x *Indexer) Sweep(ctx context.Context) error {
	if _, err := x.images.SweepImages(ctx, x.cfg.Version); err != nil {
		return err
	}
	if _, err := x.images.SweepSBOMs(ctx, registry.SBOMReader); err != nil {
		return err
	}
	if err := x.images.SweepCosts(ctx); err != nil {
		return err
	}
	_, err := x.packages.SweepChunks(ctx)
	return err
}

// index inspects an image and stores the result.
func (x *Indexer) index(ctx context.Context, q imagedb.QueuedImage) error {
	stop := x.keep(ctx, q)
	defer stop()
	if q.Tries > maxTries {
		return x.settle(ctx, q, registry.ImageNotUnderstood, "its inspection started several times and never ended")
	}
	layers, err := x.layers(ctx, q)
	if err != nil {
		return x.failed(ctx, q, err)
	}
	if q.Platform, err = x.registry.Platform(ctx, q.Repo, q.Digest); err != nil {
		return x.failed(ctx, q, err)
	}
	if layers == nil {
		return x.settle(ctx, q, registry.ImageNone, "")
	}
	known, err := x.packages.Inspected(ctx, q.Digest)
	if err != nil {
		return err
	}
	if known >= x.cfg.Version {
		return x.finish(ctx, q, nil)
	}
	found, err := x.read(ctx, q, layers)
	if err != nil {
		return x.failed(ctx, q, err)
	}
	return x.finish(ctx, q, x.inspection(q, found))
}

// keep renews the reservation of an image until stop is called.
func (x *Indexer) keep(ctx context.Context, q imagedb.QueuedImage) (stop func()) {
	return whileReserved(ctx, func(ctx context.Context) bool {
		if err := x.images.KeepImage(ctx, q, reserveLife); err != nil && ctx.Err() == nil {
			x.cfg.Log.WarnContext(ctx, "an image may be inspected twice", "err", err)
		}
		return true
	})
}

// whileReserved calls renew before a reservation ends, until stop is called or renew
// returns false. renew is not called after stop has returned.
func whileReserved(ctx context.Context, renew func(context.Context) bool) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var kept sync.WaitGroup
	kept.Go(func() {
		for {
			sleep(ctx, reserveLife/3)
			if ctx.Err() != nil || !renew(ctx) {
				return
			}
		}
	})
	return func() { cancel(); kept.Wait() }
}

// layers returns the layers of an image, or nil if all layers are documents. It returns an *inspect.NotUnderstood error
// if a layer is missing in the repo. Otherwise a user who knows only the manifest of another image would learn the
// content of that image. It also returns that error if the image has no files, but its configuration names layers,
// because a client that has these layers would run them.
func (x *Indexer) layers(ctx context.Context, q imagedb.QueuedImage) ([]inspect.Layer, error) {
	stored, err := x.registry.Layers(ctx, q.Repo, q.Digest)
	if err != nil {
		return nil, err
	}
	layers := make([]inspect.Layer, 0, len(stored))
	for _, l := range stored {
		present, err := l.Here(ctx)
		if err != nil {
			return nil, err
		}
		if !present {
			return nil, &inspect.NotUnderstood{Reason: "a layer is not in the repo"}
		}
		document, err := l.IsDocument(ctx)
		if err != nil {
			return nil, err
		}
		if document {
			continue
		}
		layers = append(layers, inspect.Layer{MediaType: l.MediaType, Digest: l.Digest, Open: l.Open})
	}
	if len(layers) > 0 {
		return layers, nil
	}
	extra, err := x.registry.NamesOtherLayers(ctx, q.Repo, q.Digest)
	if err != nil {
		return nil, err
	}
	if extra {
		return nil, &inspect.NotUnderstood{Reason: "its configuration names layers that it does not have"}
	}
	if len(stored) > 0 {
		return nil, nil
	}
	return layers, nil
}

// failed handles the error of an image that could not be read. If the error is an *inspect.NotUnderstood, the image is
// not tried again. After other errors it is tried again.
func (x *Indexer) failed(ctx context.Context, q imagedb.QueuedImage, err error) error {
	var reason *inspect.NotUnderstood
	switch {
	case errors.Is(context.Cause(ctx), errTurn):
		return x.images.PostponeImage(context.WithoutCancel(ctx), q, x.cfg.Turn, "")
	case ctx.Err() != nil: // the server stops, and another replica continues
		return x.images.PostponeImage(context.WithoutCancel(ctx), q, 0, "")
	case errors.As(err, &reason):
		return x.settle(ctx, q, registry.ImageNotUnderstood, reason.Reason)
	case errors.Is(err, fault.NotFound): // the image was deleted, and so removed from the queue
		return x.images.PostponeImage(ctx, q, retryAfter, "")
	}
	x.cfg.Metrics.Inspections.Add(1, metric.Failed)
	x.cfg.Log.WarnContext(ctx, "an image was not inspected, and will be tried again",
		"repo", string(q.Repo), "digest", q.Digest, "err", err)
	return x.images.PostponeImage(ctx, q, retryAfter, "its layers could not be read; the server tries again")
}

// settle stores the final state of an image that has no packages.
func (x *Indexer) settle(
	ctx context.Context, q imagedb.QueuedImage, state registry.ImageState, reason string,
) error {
	err := x.images.Write(ctx, func(t *store.Tx) error {
		exists, err := imagedb.In(t).HoldImage(ctx, q)
		if err != nil || !exists {
			return err
		}
		if err := x.unindex(ctx, t, q); err != nil {
			return err
		}
		return imagedb.In(t).SettleImage(ctx, q, state, reason, x.cfg.Version)
	})
	if err == nil && state == registry.ImageNotUnderstood {
		x.cfg.Metrics.Inspections.Add(1, metric.NotUnderstood)
		x.cfg.Log.InfoContext(ctx, "an image is not understood", "repo", string(q.Repo), "digest", q.Digest,
			"reason", reason)
	}
	return err
}

// finish stores the packages of an image. If found is nil, the image was already inspected in another repo, and its
// stored packages are used.
func (x *Indexer) finish(ctx context.Context, q imagedb.QueuedImage, found *registry.Inspection) error {
	var ids []int64
	if found != nil {
		plain := make([]registry.Package, len(found.Packages))
		for i, p := range found.Packages {
			plain[i] = p.Package
		}
		var err error
		if ids, err = x.packages.AddPackages(ctx, plain); err != nil {
			return err
		}
	}
	err := x.images.Write(ctx, func(t *store.Tx) error { return x.save(ctx, t, q, found, ids) })
	if err == nil {
		x.cfg.Metrics.Inspections.Add(1, metric.OK)
	}
	return err
}

// save is the transaction of finish. If found replaces a result that an older version of the extractors has stored,
// save updates all images with this digest.
func (x *Indexer) save(
	ctx context.Context, t *store.Tx, q imagedb.QueuedImage, found *registry.Inspection, ids []int64,
) error {
	images, packages := imagedb.In(t), findingdb.In(t)
	if exists, err := images.HoldImage(ctx, q); err != nil || !exists {
		return err
	}
	have, version, err := packages.LockInspection(ctx, q.Digest)
	if err != nil {
		return err
	}
	if err := x.changing(ctx, t, q, have); err != nil {
		return err
	}
	var numbers, gone []int64
	if found != nil && version < x.cfg.Version {
		if numbers, err = images.ImageNumbers(ctx, q.Digest); err != nil {
			return err
		}
		if err := images.LockChunks(ctx, numbers, q); err != nil {
			return err
		}
		before := have
		if have, err = packages.SaveInspection(ctx, *found, ids); err != nil {
			return err
		}
		gone = minus(before, have)
		// The change is quiet, because a new version of the extractors must not cause events.
		if len(gone) > 0 || len(have) > len(before) {
			if err := packages.MarkChanging(ctx, numbers, before, true); err != nil {
				return err
			}
		}
	}
	number, err := images.NumberImage(ctx, q)
	if err != nil {
		return err
	}
	numbers = append(numbers, number)
	if err := packages.ChangeImages(ctx, numbers, have, nil); err != nil {
		return err
	}
	if err := packages.TakePackages(ctx, q.Digest, numbers, gone); err != nil {
		return err
	}
	return images.SettleImage(ctx, q, registry.ImageIndexed, "", x.cfg.Version)
}

// changing records that the packages of an image change, so that the matcher writes events. It does nothing if the
// image has no number yet. found are the packages that an earlier inspection found in the image's files.
func (x *Indexer) changing(ctx context.Context, t *store.Tx, q imagedb.QueuedImage, found []int64) error {
	images, packages := imagedb.In(t), findingdb.In(t)
	number, state, err := images.ImageNumber(ctx, q)
	if err != nil || number == nil {
		return err
	}
	announced, err := packages.SBOMPackages(ctx, q.Repo, q.Digest)
	if err != nil {
		return err
	}
	if state == registry.ImageIndexed {
		announced = slices.Concat(announced, found)
		slices.Sort(announced)
		announced = slices.Compact(announced)
	}
	return packages.MarkChanging(ctx, []int64{*number}, announced, q.Again)
}

// minus returns the elements of a that are not in b. Both are sorted.
func minus(a, b []int64) (rest []int64) {
	for _, v := range a {
		if _, in := slices.BinarySearch(b, v); !in {
			rest = append(rest, v)
		}
	}
	return rest
}

// inspection converts the result of reading an image to its stored form. The texts come from users. So a package is
// left out if one of its texts is too long, or if the database cannot store the text.
func (x *Indexer) inspection(q imagedb.QueuedImage, found inspect.Result) *registry.Inspection {
	i := &registry.Inspection{Digest: q.Digest, Extractors: x.cfg.Version, Distribution: registry.Distribution{
		ID: clean(found.Distribution.ID), Version: clean(found.Distribution.VersionID),
		Name: clean(found.Distribution.Name)}}
	for _, w := range found.Warnings {
		i.Warnings = append(i.Warnings, clean(w))
	}
	left := 0
	for _, p := range found.Packages {
		stored := packageOf(p)
		if !storable(stored.Ecosystem, stored.Name, stored.Version, stored.SourceName, stored.SourceVersion, stored.PURL) {
			left++
			continue
		}
		i.Packages = append(i.Packages, registry.ImagePackage{Layer: p.Layer, Place: clean(p.Location), Package: stored})
	}
	if left > 0 {
		i.Warnings = append(i.Warnings, "packages with names or versions that cannot be stored were left out")
	}
	return i
}

// packageOf returns a package with the names that advisories use. These are in its package URL.
func packageOf(p inspect.Package) registry.Package {
	out := registry.Package{Ecosystem: p.Ecosystem, Name: p.Name, Version: p.Version, SourceName: p.SourceName,
		SourceVersion: p.SourceVersion, PURL: p.Purl, Owned: p.Owner != ""}
	if p.SourceVersion == "" { // advisories about RPMs use the name of the binary package
		out.SourceName = ""
	}
	if ecosystem, name, _, err := version.ParsePURL(p.Purl); err == nil {
		out.Ecosystem, out.Name = ecosystem, name
	}
	return out
}

func storable(texts ...string) bool {
	for _, s := range texts {
		if len(s) > maxText || clean(s) != s {
			return false
		}
	}
	return true
}

// clean returns a text that the database can store.
func clean(s string) string {
	return strings.ToValidUTF8(strings.ReplaceAll(s[:min(len(s), maxText)], "\x00", "\uFFFD"), "\uFFFD")
}

// await waits until woken is closed, or another replica may have added something to the queue.
func await(ctx context.Context, woken <-chan struct{}) {
	select {
	case <-ctx.Done():
	case <-woken:
	case <-time.After(pollEvery):
	}
}

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
