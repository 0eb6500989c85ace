package events

import (
	"context"
	"errors"
	"io"
	"iter"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/noun"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/signin"
	auditpb "github.com/holdfast-dev/holdfast/gen/audit/v1"
)

// retryWatch is the pause before an unreachable server is called again.
const retryWatch = time.Second

// followAudit returns a RunE that prints changes when they happen.
func followAudit(a *noun.App) func(*cobra.Command, []string) error {
	return a.Ask(func(ctx context.Context, cmd *cobra.Command, _ []string) error {
		req := &auditpb.WatchEntriesRequest{}
		if err := a.Narrow(ctx, entries(), cmd, req.ProtoReflect()); err != nil {
			return err
		}
		return a.PrintEach(ctx, entries(), changes(ctx, a, req))
	})
}

// changes watches changes until ctx ends. If the server ends the call, or cannot be
// reached for a while, it continues from the last position.
func changes(
	ctx context.Context, a *noun.App, req *auditpb.WatchEntriesRequest,
) iter.Seq2[protoreflect.Message, error] {
	return func(yield func(protoreflect.Message, error) bool) {
		for ctx.Err() == nil {
			stream, err := auditpb.NewAuditServiceClient(a).WatchEntries(ctx, req)
			for err == nil {
				var m *auditpb.WatchEntriesResponse
				if m, err = stream.Recv(); err != nil {
					break
				}
				req.Position = m.GetPosition()
				if e := m.GetEntry(); e != nil && !yield(e.ProtoReflect(), nil) {
					return
				}
			}
			switch {
			case ctx.Err() != nil:
				return
			case errors.Is(err, io.EOF):
			case status.Code(err) == codes.Unavailable && req.GetPosition() != "":
				sleep(ctx, retryWatch)
			default:
				yield(nil, signin.Refused(err, nil))
				return
			}
		}
	}
}

func sleep(ctx context.Context, wait time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(wait):
	}
}
