package deploy_test

import (
	_ "github.com/prometheus/prometheus/promql/parser"
)
