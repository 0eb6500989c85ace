package v2

import (
	"context"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	pb "github.com/holdfast-dev/holdfast/gen/operator/v1"
	"github.com/holdfast-dev/holdfast/internal/api/wire"
	"github.com/holdfast-dev/holdfast/internal/ops/status"
)

func (s *server) GetInstallation(ctx context.Context, _ *pb.GetInstallationRequest) (*pb.Installation, error) {
	in, err := s.operator.Installation(ctx)
	if err != nil {
		return nil, err
	}
	p := &pb.Installation{
		Version: in.Version, StartTime: wire.Time(in.StartTime), Database: databaseOf(in),
		KeyRotation:           durationpb.New(in.KeyRotation),
		CertificateExpireTime: wire.Time(in.CertificateExpiry), Work: workOf(in.State),
		Collection: collectionOf(in.Collection),
		Budgets:    wire.Convert(in.Budgets, budgetUseOf), BudgetCount: int32(in.BudgetCount),
		BudgetsIncomplete: in.BudgetsIncomplete,
	}
	for _, r := range in.Database.Replicas {
		p.Replicas = append(p.Replicas,
			&pb.Replica{Id: r.ID, Age: durationpb.New(r.Age), Behind: r.Behind, Live: status.Live(r)})
	}
	for _, k := range in.Keys {
		p.Keys = append(p.Keys,
			&pb.SigningKey{Id: k.ID, Algorithm: k.Algorithm, CreateTime: wire.Time(k.CreateTime), Signs: k.Signs})
	}
	return p, nil
}

func databaseOf(in status.Installation) *pb.Database {
	return &pb.Database{
		Version: in.Database.Version, Schema: in.Database.Schema, KnownSchema: in.KnownSchema,
		Answers: durationpb.New(in.Database.Latency), ClockSkew: durationpb.New(in.Database.Skew),
		ConnectionsInUse: int32(in.Connections), ConnectionsLimit: int32(in.Limit),
	}
}

func workOf(s status.State) *pb.Work {
	w := &pb.Work{DeliveriesWaiting: int32(s.DeliveriesWaiting), OldestDeliveryTime: wire.Time(s.OldestDelivery)}
	if s.QueuesKnown {
		w.FeedOverdue, w.InspectionsWaiting = durationpb.New(s.FeedOverdue.Truncate(time.Second)), &s.InspectionsWaiting
		feeds, sinks := int32(s.FeedsFailing), int32(s.SinksFailing)
		w.FeedsFailing, w.SubscriptionsFailing = &feeds, &sinks
		w.OldestInspectionTime = wire.Time(s.OldestInspection)
	}
	if s.Mail {
		waiting := int32(s.MailsWaiting)
		w.MailsWaiting, w.OldestMailTime = &waiting, wire.Time(s.OldestMail)
	}
	return w
}

func collectionOf(c status.Collection) *pb.Collection {
	p := &pb.Collection{
		Grace: durationpb.New(c.Grace), LastTime: wire.Time(c.Last), LastError: c.Error, LastBlobs: c.Blobs,
		LastBytes: c.Bytes,
	}
	if c.Interval >= 0 {
		p.Interval = durationpb.New(c.Interval)
	}
	return p
}

func budgetUseOf(u status.BudgetUse) *pb.BudgetUse {
	return &pb.BudgetUse{
		GroupUid: string(u.Group), GroupName: u.Name, Metric: string(u.Metric), Used: u.Used, Limit: u.Limit,
	}
}
