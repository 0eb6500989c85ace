package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/registry/registrydb"
	"github.com/holdfast-dev/holdfast/internal/registry/upkeep"
	"github.com/holdfast-dev/holdfast/internal/server/config"
	"github.com/holdfast-dev/holdfast/internal/server/maintenance"
	"github.com/holdfast-dev/holdfast/internal/store"
)

// scrubPause is the time that the server waits before each run over all blobs.
const scrubPause = 10 * time.Minute

// scrub reads all blobs repeatedly until ctx ends, if scrub_rate is set.
func (s *Server) scrub(ctx context.Context) error {
	if s.cfg.ScrubRate <= 0 {
		return nil
	}
	blobs, err := s.cfg.Storage()
	if err != nil {
		return err
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(scrubPause): // limits the runs if there are few blobs
		}
		pass := upkeep.Scrubber{
			Store: registrydb.New(s.store), Storage: blobs, Rate: int64(s.cfg.ScrubRate), Judge: s.registry.Judge,
		}
		result, err := pass.Run(ctx)
		switch {
		case ctx.Err() != nil:
		case err != nil:
			s.log.WarnContext(ctx, "cannot scrub the blobs", "err", err)
		default:
			s.log.InfoContext(ctx, "scrubbed all blobs", "blobs", result.Blobs, "bytes", result.Bytes,
				"rotten", len(result.Rotten), "repaired", result.Repaired, "failed", result.Failed)
		}
	}
}

// runScrub reads all blobs in this process, and asks the server for a verdict about
// blobs that seem to be missing or damaged.
func runScrub(ctx context.Context, cfg Config, args []string, out io.Writer) (err error) {
	pass := upkeep.Scrubber{}
	for _, a := range args {
		text, ok := strings.CutPrefix(a, "rate=")
		if !ok {
			return fault.Field("arguments", "scrub accepts only --rate")
		}
		if pass.Rate, err = parseRate(text); err != nil {
			return err
		}
	}
	db, err := store.OpenToRead(ctx, cfg.Database)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	pass.Store = registrydb.New(db)
	if pass.Storage, err = cfg.Storage(); err != nil {
		return err
	}
	pass.Judge = func(ctx context.Context, digest string) (upkeep.Verdict, error) {
		var answer strings.Builder
		err := perform(ctx, cfg, "blobs/check", []string{digest}, &answer)
		if err != nil {
			fmt.Fprintf(cfg.Stderr, "%s: %s\n", digest, fault.Explain(err))
		}
		return upkeep.Verdict(strings.TrimSpace(answer.String())), err
	}
	pass.Report = reportScrub(cfg.Stderr)
	begin := time.Now()
	result, err := pass.Run(ctx)
	for _, digest := range result.Rotten {
		fmt.Fprintln(out, digest)
	}
	fmt.Fprintf(out, "Read %d blobs (%s) in %s: %d are missing or wrong, %d were repaired, %d could not be read.\n",
		result.Blobs, config.Size(result.Bytes), time.Since(begin).Round(time.Millisecond), len(result.Rotten),
		result.Repaired, result.Failed)
	if err == nil && len(result.Rotten)+result.Failed > 0 {
		err = maintenance.ErrWarnings
	}
	return err
}

// reportScrub returns a function that writes the progress of a scrub, at most every
// ten seconds.
func reportScrub(out io.Writer) func(upkeep.Scrubbed) {
	const every = 10 * time.Second
	shown := time.Now()
	return func(result upkeep.Scrubbed) {
		if time.Since(shown) < every {
			return
		}
		shown = time.Now()
		fmt.Fprintf(out, "%d blobs (%s) read, %d are missing or wrong\n", result.Blobs, config.Size(result.Bytes),
			len(result.Rotten))
	}
}

// parseRate reads a number of bytes a second, such as 50MiB, 50MB or 50MB/s.
func parseRate(text string) (int64, error) {
	number, decimal := strings.TrimSuffix(text, "/s"), int64(1)
	for suffix, n := range map[string]int64{"KB": 1e3, "MB": 1e6, "GB": 1e9} {
		if rest, ok := strings.CutSuffix(number, suffix); ok {
			number, decimal = rest, n
			break
		}
	}
	var n config.Size
	if err := n.UnmarshalText([]byte(number)); err != nil || n <= 0 || decimal > 1 && strings.HasSuffix(number, "B") {
		return 0, fault.Field("rate", "%q is not a number of bytes a second, like 50MB or 50MiB", text)
	}
	return int64(n) * decimal, nil
}
