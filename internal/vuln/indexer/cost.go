package indexer

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/holdfast-dev/holdfast/internal/registry/imagedb"
	"github.com/holdfast-dev/holdfast/internal/vuln/inspect"
)

// cheapPart divides the limits of an inspection. The cost of a layer below the result is not remembered, because an
// image has at most 500 layers, and 500 such layers stay within the limits.
const cheapPart = 1000

// read reads the layers of an image, and charges the tenant of the image with the processor time. It does not read an
// image whose layers are known to exceed the limits together.
func (x *Indexer) read(ctx context.Context, q imagedb.QueuedImage, layers []inspect.Layer) (inspect.Result, error) {
	known, err := x.images.LayerCosts(ctx, q, x.cfg.Version, digestsOf(layers))
	if err != nil {
		return inspect.Result{}, err
	}
	var bytes int64
	var expected time.Duration
	for _, c := range known {
		bytes, expected = bytes+c.Bytes, expected+c.Processor
	}
	limits := inspect.DefaultLimits()
	// The limit on processor time is not exact: a child that was killed has used a little less.
	if bytes > limits.Bytes || expected >= time.Duration(limits.Seconds)*time.Second*9/10 {
		return inspect.Result{}, &inspect.NotUnderstood{
			Reason: "its layers were read before, and reading them is over the limits of an inspection"}
	}
	if err := x.images.Charge(ctx, q, expected); err != nil {
		return inspect.Result{}, err
	}
	found, err := x.cfg.Read(ctx, x.images.TenantOf(ctx, q), layers)
	return found, errors.Join(err, x.account(context.WithoutCancel(ctx), q, layers, expected, found, err))
}

// digestsOf returns the different digests of layers.
func digestsOf(layers []inspect.Layer) (digests []string) {
	for _, l := range layers {
		digests = append(digests, l.Digest)
	}
	slices.Sort(digests)
	return slices.Compact(digests)
}

// account corrects the charge for an image to the processor time that was used, and remembers the costs of its layers.
func (x *Indexer) account(
	ctx context.Context, q imagedb.QueuedImage, layers []inspect.Layer, expected time.Duration, found inspect.Result,
	failed error,
) error {
	used, costs := usage(found, failed)
	if err := x.images.Charge(ctx, q, used-expected); err != nil {
		return err
	}
	var remembered []imagedb.LayerCost
	limits := inspect.DefaultLimits()
	for _, c := range costs {
		if c.Bytes < limits.Bytes/cheapPart && c.Processor < time.Duration(limits.Seconds)*time.Second/cheapPart {
			continue
		}
		remembered = append(remembered, imagedb.LayerCost{
			Digest: layers[c.Layer].Digest, Bytes: c.Bytes, Processor: c.Processor,
		})
	}
	return x.images.RememberCosts(ctx, q, x.cfg.Version, remembered)
}

// usage returns the processor time of an inspection, and the costs of the layers that it has read.
func usage(found inspect.Result, failed error) (time.Duration, []inspect.LayerCost) {
	var reason *inspect.NotUnderstood
	if errors.As(failed, &reason) {
		return reason.Processor, reason.Layers
	}
	return found.Processor, found.Layers
}
