# Spark and the commands "anabranch spark ...", with Java: some 1.1 GB. From the repository:
#   docker build -f docker/spark.Dockerfile -t anabranch-spark .
ARG PYTHON_VERSION=3.13

FROM python:${PYTHON_VERSION}-slim
WORKDIR /source
COPY pyproject.toml hatch_build.py constraints.txt README.md LICENSE ./
COPY src ./src
RUN python -m pip install --no-cache-dir --constraint constraints.txt \
      --build-constraint constraints.txt '.[spark,lake]' \
 && groupadd --system --gid 999 anabranch \
 && useradd --system --uid 999 --gid 999 --home-dir /lake --no-create-home anabranch \
 && mkdir /lake && chown 999:999 /lake

USER 999:999
WORKDIR /lake
VOLUME /lake
CMD ["anabranch", "spark", "--help"]
