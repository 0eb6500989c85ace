package vulntest

import (
	"context"

	"github.com/holdfast-dev/holdfast/internal/registry"
	"github.com/holdfast-dev/holdfast/internal/registry/imagedb"
	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/internal/vuln/findingdb"
)

// SettleImage takes an image out of the queue, and gives it a number and packages.
func SettleImage(ctx context.Context, s *store.DB, q imagedb.QueuedImage, packages ...int64) (number int64,
	_ error) {
	err := s.Write(ctx, func(t *store.Tx) error {
		queued, err := imagedb.In(t).HoldImage(ctx, q)
		if err != nil || !queued {
			return err
		}
		if number, err = imagedb.In(t).NumberImage(ctx, q); err != nil {
			return err
		}
		if err := findingdb.In(t).ChangeImages(ctx, []int64{number}, packages, nil); err != nil {
			return err
		}
		return imagedb.In(t).SettleImage(ctx, q, registry.ImageIndexed, "", 1)
	})
	return number, err
}
