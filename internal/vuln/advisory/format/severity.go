package format

import (
	"strings"

	cvss2 "github.com/pandatix/go-cvss/20"
	cvss30 "github.com/pandatix/go-cvss/30"
	cvss31 "github.com/pandatix/go-cvss/31"
	cvss4 "github.com/pandatix/go-cvss/40"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/vuln"
)

// maxVector is the maximum number of bytes of a CVSS vector. No valid vector is that long.
const maxVector = 512

// CheckSeverity returns fault.InvalidArgument if the score is not a vector of its version of CVSS.
func CheckSeverity(s vuln.Severity) error {
	var err error
	switch {
	case len(s.Score) > maxVector:
		return fault.Field("severities", "a CVSS vector has at most %d bytes", maxVector)
	case s.Type == vuln.CVSSv2:
		_, err = cvss2.ParseVector(s.Score)
	case s.Type == vuln.CVSSv3 && strings.HasPrefix(s.Score, "CVSS:3.0/"):
		_, err = cvss30.ParseVector(s.Score)
	case s.Type == vuln.CVSSv3:
		_, err = cvss31.ParseVector(s.Score)
	case s.Type == vuln.CVSSv4:
		_, err = cvss4.ParseVector(s.Score)
	default:
		return fault.Field("severities", "is not a version of CVSS")
	}
	if err != nil {
		return fault.Field("severities", "%q is not a %s vector", s.Score, severityNames[s.Type])
	}
	return nil
}

// Score returns the base score of a CVSS vector, from 0 to 10. It returns 0 if the vector is invalid.
func Score(s vuln.Severity) float64 {
	switch {
	case len(s.Score) > maxVector:
	case s.Type == vuln.CVSSv2:
		if v, err := cvss2.ParseVector(s.Score); err == nil {
			return v.BaseScore()
		}
	case s.Type == vuln.CVSSv3 && strings.HasPrefix(s.Score, "CVSS:3.0/"):
		if v, err := cvss30.ParseVector(s.Score); err == nil {
			return v.BaseScore()
		}
	case s.Type == vuln.CVSSv3:
		if v, err := cvss31.ParseVector(s.Score); err == nil {
			return v.BaseScore()
		}
	case s.Type == vuln.CVSSv4:
		if v, err := cvss4.ParseVector(s.Score); err == nil {
			return v.Score()
		}
	}
	return 0
}

// severityNames are the names of severity types in OSV.
var severityNames = map[vuln.SeverityType]string{
	vuln.CVSSv2: "CVSS_V2", vuln.CVSSv3: "CVSS_V3", vuln.CVSSv4: "CVSS_V4",
}

func severityType(name string) vuln.SeverityType {
	for t, n := range severityNames {
		if n == name {
			return t
		}
	}
	return vuln.SeverityUnspecified
}
