// Package vulnapi has the methods about vulnerabilities: advisories, findings,
// exceptions, rules and inventories. It converts between messages and resources,
// and calls the services.
package vulnapi

import (
	"google.golang.org/grpc"

	advisoriespb "github.com/holdfast-dev/holdfast/gen/advisories/v1"
	findingspb "github.com/holdfast-dev/holdfast/gen/findings/v1"
	vulnpb "github.com/holdfast-dev/holdfast/gen/vulnerabilities/v2beta1"
	"github.com/holdfast-dev/holdfast/internal/vuln/advisory"
	"github.com/holdfast-dev/holdfast/internal/vuln/blast"
	"github.com/holdfast-dev/holdfast/internal/vuln/inventory"
	"github.com/holdfast-dev/holdfast/internal/vuln/policy"
	"github.com/holdfast-dev/holdfast/internal/vuln/query"
	"github.com/holdfast-dev/holdfast/internal/vuln/report"
	"github.com/holdfast-dev/holdfast/internal/vuln/trend"
)

// Services are the services that the methods call.
type Services struct {
	Advisory  *advisory.Service
	Findings  *query.Service
	Policy    *policy.Service
	Images    *policy.ImageChecker
	Blast     *blast.Service
	Inventory *inventory.Service
	Trends    *trend.Service
	Reports   *report.Service
}

// A server implements the gRPC services.
type server struct {
	findingspb.UnsafeFindingsServiceServer
	findingspb.UnsafeGroupFindingsServiceServer
	findingspb.UnsafeExploitedServiceServer
	findingspb.UnsafeExceptionsServiceServer
	findingspb.UnsafeRulesServiceServer
	findingspb.UnsafeAdmissionServiceServer
	findingspb.UnsafeSlasServiceServer
	findingspb.UnsafeReportsServiceServer
	findingspb.UnsafeVexServiceServer
	findingspb.UnsafeComparisonServiceServer
	findingspb.UnsafeInventoryServiceServer
	findingspb.UnsafeBlastServiceServer
	vulnpb.UnsafeAdvisoriesServiceServer
	advisoriespb.UnsafeAdvisoryReadingServiceServer
	advisoriespb.UnsafeAdvisoryWritingServiceServer
	advisoriespb.UnsafeAdvisoryFeedsServiceServer

	Services
	dir   string // folder for temporary files; "": the system's temporary folder
	spool *spool
}

// Register adds the gRPC services to r. dir is the folder that stores documents during
// their import. "" is the system's temporary folder.
func Register(r grpc.ServiceRegistrar, services Services, dir string) {
	s := &server{Services: services, dir: dir, spool: newSpool()}
	findingspb.RegisterFindingsServiceServer(r, s)
	findingspb.RegisterGroupFindingsServiceServer(r, s)
	findingspb.RegisterExploitedServiceServer(r, s)
	findingspb.RegisterExceptionsServiceServer(r, s)
	findingspb.RegisterRulesServiceServer(r, s)
	findingspb.RegisterAdmissionServiceServer(r, s)
	findingspb.RegisterSlasServiceServer(r, s)
	findingspb.RegisterReportsServiceServer(r, s)
	findingspb.RegisterVexServiceServer(r, s)
	findingspb.RegisterComparisonServiceServer(r, s)
	findingspb.RegisterInventoryServiceServer(r, s)
	findingspb.RegisterBlastServiceServer(r, s)
	vulnpb.RegisterAdvisoriesServiceServer(r, s)
	advisoriespb.RegisterAdvisoryReadingServiceServer(r, s)
	advisoriespb.RegisterAdvisoryWritingServiceServer(r, s)
	advisoriespb.RegisterAdvisoryFeedsServiceServer(r, s)
}
