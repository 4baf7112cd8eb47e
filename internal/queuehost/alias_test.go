package queuehost

import "holdfast/internal/replica"

type replicaOptions = replica.Options
